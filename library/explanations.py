"""`headcount.explain`: what heads, K/V heads and the cache are, with a model's own numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.audit.topics import QUESTIONS, default_model

from .result import Result, public
from .values import Name, model_name, one_of


@dataclass(frozen=True, kw_only=True)
class ExplainedSum:
    """A `formula`, the same `filled` with the model's numbers, and its `value` in `unit`."""

    key: str
    formula: str
    filled: str
    value: float
    unit: str


@dataclass(frozen=True, kw_only=True, eq=False)
class ExplanationResult(Result):
    """A page on a topic; without one `questions` are those of all topics and the rest is empty.
    `applies`: whether the topic is about the model, else the page shows what it has instead."""

    topic: str | None
    id: str | None
    applies: bool
    questions: Mapping[str, str] = field(repr=False)
    text: tuple[str, ...] = field(repr=False)
    sums: tuple[ExplainedSum, ...] = field(repr=False)
    sources: tuple[str, ...] = field(repr=False)


@public
def explain(topic: str | None = None, model: Name | None = None) -> ExplanationResult:
    """Explains `topic` (mha, w_o, head_dim, cache, gqa, group, mqa, mla, window, induction) with
    the numbers of `model`, named as for `audit`; None: of one that has what the topic is
    about. Without a topic all are listed. Raises HeadcountError."""
    from headcount.audit.topics.explaining import explained, topics_report

    if topic is None:
        return ExplanationResult(
            report=topics_report(),
            topic=None,
            id=None,
            applies=False,
            questions=dict(QUESTIONS),
            text=(),
            sums=(),
            sources=(),
        )
    from headcount.audit.auditing import audit_model

    name = one_of(QUESTIONS)("topic", topic)
    audit = audit_model(default_model(name) if model is None else model_name(model))
    report = explained(name, audit, by_default=model is None)
    document: Mapping[str, Any] = report.document
    return ExplanationResult(
        report=report,
        topic=name,
        id=document["model"]["id"],
        applies=document["applies"],
        questions={name: QUESTIONS[name]},
        text=tuple(document["text"]),
        sums=tuple(ExplainedSum(**one) for one in document["sums"]),
        sources=tuple(document["sources"]),
    )
