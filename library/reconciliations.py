"""`headcount.reconcile`: start-up logs of engines held against what the same starts would give."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headcount.plan.engines.registry import started
from headcount.plan.reconcile.command import reconcile_logs

from .result import Result, public
from .start_options import STARTS, StartOptions
from .values import Check, Name, Size, checked, integer, model_name, number, one_of, text, tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, kw_only=True)
class ReconciledFigure:
    """A figure as logged and as predicted; `agrees` is None where nothing is known to predict it
    from. Of a start that failed the first figures say what was needed and what there was."""

    figure: str
    logged: float | None
    predicted: float | None
    low: float | None
    high: float | None
    agrees: bool | None
    why: str


@dataclass(frozen=True, kw_only=True)
class ReconciledLog:
    """What one log says. `error`: why one of several was not read."""

    log: str
    engine: str
    model: str
    verdict: str
    figures: tuple[ReconciledFigure, ...] = field(repr=False)
    error: str | None


@dataclass(frozen=True, kw_only=True, eq=False)
class ReconciliationResult(Result):
    """What logs say. `agrees`: every start came up and no figure disagrees. `figures` are those of
    all `logs`, one after the other."""

    agrees: bool
    logs: tuple[ReconciledLog, ...] = field(repr=False)

    @property
    def figures(self) -> tuple[ReconciledFigure, ...]:
        return tuple(figure for log in self.logs for figure in log.figures)


_OPTIONS: dict[str, Check] = {
    **{"model": text, "device": text, "context": tokens, "tp": integer, "dtype": text},
    **{"kv_dtype": text, "utilisation": number, "engine": one_of(started())},
}


@public
def reconcile(
    *logs: Name,
    model: str | None = None,
    device: str | None = None,
    context: Size | None = None,
    tp: int | None = None,
    dtype: str | None = None,
    kv_dtype: str | None = None,
    utilisation: float | None = None,
    engine: str | None = None,
    **start: "Unpack[StartOptions]",
) -> ReconciliationResult:
    """Holds start-up logs (files, folders of them, or "-" for standard input) of vLLM, SGLang,
    llama.cpp, Ollama or TensorRT-LLM against what the same starts give by the engines' rules, and
    explains starts that failed.

    The others say what a log does not: `start` as for `plan`. Raises HeadcountError for one log
    that holds no figures, or is of a model that nothing names; of several a row says so.
    """
    named = {"model": model, "device": device, "context": context, "tp": tp, "dtype": dtype}
    given = {**named, "kv_dtype": kv_dtype, "utilisation": utilisation, "engine": engine}
    names = [model_name(log) for log in logs]
    if not names:
        raise TypeError("reconcile() needs a log at least")
    answer = reconcile_logs(names, {**checked(given, _OPTIONS), **checked(start, STARTS)})
    document: Mapping[str, Any] = answer.report.document
    return ReconciliationResult(
        report=answer.report,
        agrees=answer.agrees,
        logs=tuple(_log(one) for one in document.get("reconciliations", [document])),
    )


def _log(document: Mapping[str, Any]) -> ReconciledLog:
    names = ("log", "engine", "model", "verdict", "error")
    figures = tuple(ReconciledFigure(**figure) for figure in document["figures"])
    return ReconciledLog(**{name: document[name] for name in names}, figures=figures)
