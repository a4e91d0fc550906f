"""`headcount.evaluate`: loss, cache and speed of a model, and what a conversion did to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headcount.evaluate.errors import EvaluationFailedError
from headcount.evaluate.evaluation_request import BEHAVIOURS, EvaluationRequest
from headcount.running.extra import need_extra

from .result import Result, bars, public
from .values import (
    Check,
    Name,
    Size,
    flag,
    integer,
    model_name,
    one_of,
    path,
    settled,
    several,
    tokens,
)
from .values import text as name_of_task

_DEFAULTS = EvaluationRequest(model="")


@dataclass(frozen=True, kw_only=True, eq=False)
class EvaluationResult(Result):
    """What was measured. Losses are nats a token; what compares two models is None without an
    original, and the cache's bytes where they cannot be told."""

    id: str
    loss: float
    perplexity: float | None
    tokens: int
    against: str | None
    delta_loss: float | None
    kl_divergence: float | None
    top1_agreement: float | None
    predicted_cache_bytes: int | None
    measured_cache_bytes: int | None
    warnings: tuple[str, ...] = field(repr=False)


@public
def evaluate(
    model: Name,
    *,
    against: Name | None = None,
    dtype: str | None = None,
    text: Name | None = None,
    pairs: Name | None = None,
    documents: bool = False,
    max_tokens: Size = _DEFAULTS.max_tokens,
    window: Size | None = None,
    stride: Size | None = None,
    tokenizer: Name | None = None,
    device: str | None = None,
    behaviour: Literal["none", "brief", "full"] = "brief",
    roles: bool = True,
    speed: bool = True,
    tasks: Sequence[str] = (),
    task_folder: Name | None = None,
    task_limit: int | None = None,
    card: bool = False,
    progress: bool = False,
) -> EvaluationResult:
    """Measures the model in a folder and, with the folder of the original as `against`, what sets
    the two apart. Needs the extra `convert`, and `tasks` the extra `tasks`.

    `text` is a UTF-8 file (None: a sample of prose), of which at most `max_tokens` are scored in
    windows of `window` tokens every `stride`; with `documents` each line, or each file of a folder,
    is a sequence. An encoder-decoder is measured on `pairs`, a file of sources and targets; without
    one the lines of the text are sources, and the original's own words the targets. `device` is
    cpu, cuda… as torch calls it, or auto: spread over all. With `card` the figures go into the
    model card of a converted folder. Raises HeadcountError, and EvaluationFailedError where the
    numbers are worth nothing.
    """
    need_extra("headcount.evaluate")
    on = {"text": text, "pairs": pairs, "documents": documents, "tokenizer": tokenizer}
    sizes = {"max_tokens": max_tokens, "window": window, "stride": stride}
    parts = {"behaviour": behaviour, "roles": roles, "speed": speed}
    of_tasks = {"tasks": tasks, "task_folder": task_folder, "task_limit": task_limit}
    asked = evaluation_options({**on, **sizes, **parts, **of_tasks, "device": device})
    request = EvaluationRequest(
        model=model_name(model),
        against=None if against is None else model_name(against),
        dtype=dtype,
        **asked,
    )
    with bars(progress):
        return _evaluated(request, flag("card", card))


_CHECKS: Mapping[str, Check] = {
    **dict.fromkeys(("max_tokens", "window", "stride"), tokens),
    **dict.fromkeys(("text", "pairs", "tokenizer", "task_folder"), path),
    "behaviour": one_of(BEHAVIOURS),
    "tasks": several(name_of_task),
    "task_limit": integer,
}


def evaluation_options(given: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an EvaluationRequest, checked. Raises HeadcountError."""
    return settled(given, _CHECKS)


def check_evaluation(source: Path, **request: Any) -> None:
    """Raises HeadcountError for an evaluation that would fail, before a conversion is made for it:
    text, tokenizer, window and device are those of the source."""
    from headcount.evaluate.evaluation_plan import check_request, plan_evaluation
    from headcount.evaluate.pairs.pairs_evaluation import reads_pairs
    from headcount.running.boundary import quiet_transformers

    asked = EvaluationRequest(model=str(source), **request)
    with quiet_transformers():
        check_request(asked)
        if not reads_pairs(asked):
            plan_evaluation(asked)


def _evaluated(request: EvaluationRequest, card: bool) -> EvaluationResult:
    from headcount.evaluate.evaluated_card import check_card, write_into_card
    from headcount.evaluate.evaluation import evaluate as evaluation_of
    from headcount.evaluate.evaluation_report import evaluation_report

    if card:
        check_card(Path(request.model))
    found = evaluation_of(request)
    if found.failure is not None:
        raise EvaluationFailedError(found.failure)
    if card:
        write_into_card(Path(request.model), found)
    report = evaluation_report(found)
    document: Mapping[str, Any] = report.document
    about, original, cache = (document[part] for part in ("model", "against", "cache_bytes"))
    compared = ("delta_loss", "kl_divergence", "top1_agreement")
    return EvaluationResult(
        report=report,
        **{name: about[name] for name in ("id", "loss", "perplexity", "tokens")},
        against=original["id"] if original else None,
        **{name: document[name] for name in compared},
        predicted_cache_bytes=cache["predicted"],
        measured_cache_bytes=cache["measured"],
        warnings=found.warnings,
    )
