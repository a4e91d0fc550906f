"""`headcount.evaluate`: loss, cache and speed of a model, and what a conversion did to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from headcount.evaluate.errors import EvaluationFailedError
from headcount.evaluate.evaluation_request import BEHAVIOURS, EvaluationRequest
from headcount.running.extra import need_extra

from .result import Result, public
from .values import Name, Size, flag, integer, model_name, one_of, path, several, tokens
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
) -> EvaluationResult:
    """Measures the model in a folder and, with the folder of the original as `against`, what sets
    the two apart. Needs the extra `convert`, and `tasks` the extra `tasks`.

    `text` is a UTF-8 file (None: a sample of prose), of which at most `max_tokens` are scored in
    windows of `window` tokens every `stride`; with `documents` each line, or each file of a folder,
    is a sequence. An encoder-decoder is measured on `pairs`, a file of sources and targets; without
    one the lines of the text are sources, and the original's own words the targets. `device` is
    cpu, cuda… as torch calls it. With `card` the figures go into the model card of a converted
    folder. Raises HeadcountError, and EvaluationFailedError where the numbers are worth nothing.
    """
    need_extra("headcount.evaluate")
    request = EvaluationRequest(
        model=model_name(model),
        against=None if against is None else model_name(against),
        dtype=dtype,
        documents=documents,
        max_tokens=tokens("max_tokens", max_tokens),
        window=None if window is None else tokens("window", window),
        stride=None if stride is None else tokens("stride", stride),
        device=device,
        behaviour=one_of(BEHAVIOURS)("behaviour", behaviour),
        roles=roles,
        speed=speed,
        tasks=several(name_of_task)("tasks", tasks),
        task_limit=None if task_limit is None else integer("task_limit", task_limit),
        text=None if text is None else path("text", text),
        pairs=None if pairs is None else path("pairs", pairs),
        tokenizer=None if tokenizer is None else path("tokenizer", tokenizer),
        task_folder=None if task_folder is None else path("task_folder", task_folder),
    )
    return _evaluated(request, flag("card", card))


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
