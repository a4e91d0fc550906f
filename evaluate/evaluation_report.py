"""An evaluation as people read it: the model's line, the original's, and what lies between."""

from collections.abc import Iterator

from headcount.report.report import Column, Fact, Report, Table, Tone

from .behaviour.behaviour import Behaviour
from .behaviour.behaviour_report import (
    behaviour_charts,
    behaviour_facts,
    behaviour_notes,
    behaviour_tables,
)
from .behaviour.record import COLUMNS as _PROBED
from .behaviour.record import record
from .evaluation_document import EvaluationReport, ModelScore, Settings
from .roles_section import roles_facts, roles_tables
from .task_table import task_table

_COLUMNS = (
    Column(key="model", title="Model"),
    Column(key="loss", title="Loss", unit="loss"),
    Column(key="perplexity", title="Perplexity", unit="perplexity", drop=2),
    Column(key="bits_per_byte", title="Bits/byte", unit="loss", drop=3),
    Column(key="cache_measured", title="Cache, measured", unit="exact_bytes"),
    Column(key="cache_predicted", title="Predicted", unit="exact_bytes", drop=4),
    Column(key="prefill", title="Prefill tokens", unit="rate", drop=1),
    Column(key="decode", title="Decode tokens", unit="rate"),
)


_TONES: dict[str, Tone] = {"kept": "good", "weakened": "open", "destroyed": "bad"}


def evaluation_report(evaluation: EvaluationReport) -> Report:
    """The whole report of one evaluation."""
    scores = [evaluation.model, *([evaluation.against] if evaluation.against else [])]
    behaviour = evaluation.behaviour
    return Report(
        title=f"Evaluation of {evaluation.model.id}",
        facts=tuple(_facts(evaluation)),
        tables=(
            _table(scores),
            *([task_table(evaluation.tasks)] if evaluation.tasks else []),
            *(table._replace(brief=0) for table in _closer(evaluation)),
        ),
        notes=(*_notes(evaluation), *evaluation.warnings),
        document=evaluation.document(),
        records=_records(scores, behaviour),
        charts=tuple(behaviour_charts(behaviour)) if behaviour else (),
        is_brief=True,
    )


def _closer(evaluation: EvaluationReport) -> Iterator[Table]:
    """What is behind the figures of the head."""
    if evaluation.behaviour is not None:
        yield from behaviour_tables(evaluation.behaviour)
    yield from roles_tables(evaluation)


def _verdict(evaluation: EvaluationReport) -> Fact:
    """The loss, beside the original's if there is one; what it does not show is told with it."""
    model, comparison = evaluation.model, evaluation.comparison
    if evaluation.failure is not None:
        return Fact("verdict", "Verdict", "worth nothing: see the error", tone="bad")
    if comparison is None:
        return Fact("verdict", "Verdict", f"a loss of {model.loss:.4f} nats a token")
    copying = evaluation.behaviour and evaluation.behaviour.verdict
    is_told = copying in ("kept", "weakened", "destroyed")
    return Fact(
        key="verdict",
        title="Verdict",
        value=f"KL {comparison.kl_divergence:.4f}, loss {evaluation.delta_loss:+.4f} nats a token"
        f"{f'; copying from the context {copying}' if is_told else ''}",
        tone=_TONES.get(copying or "", ""),
    )


def _facts(evaluation: EvaluationReport) -> Iterator[Fact]:
    """With an original, first what tells the two apart whatever the text is: the divergence."""
    model, comparison = evaluation.model, evaluation.comparison
    yield _verdict(evaluation)
    yield from text_facts(evaluation.settings, model.tokens)
    if comparison is not None:
        yield Fact(
            key="kl_divergence",
            title="KL divergence",
            value=comparison.kl_divergence,
            unit="loss",
            note="original || model, nats a token",
        )
        yield Fact(
            key="top1_agreement",
            title="Top-1 agreement",
            value=100 * comparison.top1_agreement,
            unit="percent",
        )
    yield Fact(key="loss", title="Loss", value=model.loss, unit="loss", note="nats a token")
    if evaluation.delta_loss is not None:
        delta = f"{evaluation.delta_loss:+.4f}"
        yield Fact(
            key="delta_loss",
            title="Against the original",
            value=delta,
            note="nats a token",
            detail=True,
        )
    perplexity = "beyond any number" if model.perplexity is None else model.perplexity
    yield Fact(key="perplexity", title="Perplexity", value=perplexity, unit="perplexity")
    if evaluation.behaviour is not None:
        yield from behaviour_facts(evaluation.behaviour)
    yield from roles_facts(evaluation)


def text_facts(settings: Settings, tokens: int) -> Iterator[Fact]:
    """What `tokens` scored tokens of which text are, and how they were cut."""
    windows = f"windows of {settings.window} by {settings.stride}"
    if settings.documents > 1:
        windows = f"{settings.documents:,} documents, {windows}"
    if settings.targets is not None:
        windows = (
            f"of {settings.documents:,} targets of at most {settings.window:,}, {settings.targets}"
        )
    note = f"{tokens:,} tokens scored, {windows}"
    yield Fact(key="text", title="Text", value=settings.text, note=note)
    if settings.targets is not None:
        return
    yield Fact(
        key="begins", title="Each window begins with", value=_begins(settings.bos), detail=True
    )


def _begins(bos: bool) -> str:
    return "BOS, as the tokenizer has it" if bos else "its own text: the tokenizer adds no BOS"


def _table(scores: list[ModelScore]) -> Table:
    """One row a model; a column with nothing measured is left out."""
    rows = [_row(score) for score in scores]
    keep = [i for i in range(len(_COLUMNS)) if any(row[i] is not None for row in rows)]
    return Table(
        key="scores",
        title="Scores",
        columns=tuple(_COLUMNS[i] for i in keep),
        rows=tuple(tuple(row[i] for i in keep) for row in rows),
    )


def _records(scores: list[ModelScore], behaviour: Behaviour | None) -> Table:
    """The same, all columns, with what the probes found."""
    probed = [None] * len(_PROBED)
    return Table(
        key="scores",
        title="Scores",
        columns=(*_COLUMNS, *_PROBED),
        rows=tuple(
            (*_row(score), *(record(behaviour, original=at > 0) if behaviour else probed))
            for at, score in enumerate(scores)
        ),
    )


def _row(score: ModelScore) -> tuple[object, ...]:
    speed = score.speed
    return (
        score.id,
        score.loss,
        score.perplexity,
        score.bits_per_byte,
        score.cache.measured,
        score.cache.predicted,
        speed.prefill_tokens_per_second if speed else None,
        speed.decode_tokens_per_second if speed else None,
    )


def _notes(evaluation: EvaluationReport) -> Iterator[str]:
    if evaluation.behaviour is not None:
        yield from behaviour_notes(evaluation.behaviour)
    settings, cache = evaluation.settings, evaluation.model.cache
    yield (
        f"Cache after {cache.tokens:,} tokens, batch 1, {cache.dtype}: the elements that"
        " transformers holds, beside what `headcount audit` says."
    )
    if evaluation.model.speed is not None:
        yield (
            f"Speed: {settings.prompt_tokens} tokens of prompt and {settings.decode_tokens} steps,"
            f" the median of {settings.repeats} runs on {settings.device}, models in turns."
        )
