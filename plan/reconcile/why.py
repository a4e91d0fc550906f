"""Why a figure may disagree: the one other setting with which it would not."""

from collections.abc import Iterator
from dataclasses import replace

from headcount.model.errors import HeadcountError

from ..engines.engine import check_options, find_engine
from ..engines.start_log import StartLog, start_logs
from ..parallel import check_tp
from ..plan import plan_model
from .figures import Figure, bounds, of_plan
from .start import Start

_GIB = 2**30


def explained(start: Start, figure: Figure) -> Figure:
    """`figure`, with the reason for a disagreement in `why`."""
    if figure.agrees is not False:
        return figure
    if figure.figure == "weights_bytes":
        reason = _weights(figure)
    elif figure.figure == "available_kv_bytes":
        reason = _available(start, figure)
    else:
        reason = _count(start, figure)
    return replace(figure, why=f"{reason}; predicted {figure.why}")


def _count(start: Start, figure: Figure) -> str:
    for words, other in _others(start):
        basis = bounds(replace(start, request=other.request))
        if of_plan(figure.figure, figure.logged, basis).agrees:
            return f"agrees with {words}"
    ratio = figure.logged / figure.predicted if figure.predicted else 0.0
    return (
        f"{ratio:.3f} of what the rules give; no other cache type, tp, block size or version of"
        " the rules explains it"
    )


def _others(start: Start) -> Iterator[tuple[str, Start]]:
    """The same start with one setting changed, the likeliest first."""
    request = start.request
    for kv_dtype in (*find_engine(request.engine).narrower_caches, "bfloat16"):
        yield f"--kv-dtype {kv_dtype}", _with(start, kv_dtype=kv_dtype)
    for tp in (1, 2, 4, 8):
        if tp != request.tp:
            yield f"--tp {tp}", _with(start, tp=tp)
    for size in (16, 32, 64, 128):
        if size != request.block_size:
            yield f"--block-size {size}", _with(start, block_size=size)
    for words, changed in _log_of(start).other_counts(request):
        yield words, _with(start, **changed)


def _log_of(start: Start) -> StartLog:
    """How the engine logs a start; of one whose logs are not known, nothing more than others'."""
    engine = start.request.engine
    return start_logs().get(engine) or StartLog(engine=engine, looked_for="")


def _with(start: Start, **changed: object) -> Start:
    request = replace(start.request, **changed)  # type: ignore[arg-type]
    try:
        check_tp(start.model.spec, request.tp, start.model.model_id)
        check_options(find_engine(request.engine), request)
    except HeadcountError:
        return start
    return replace(start, request=request)


def _weights(figure: Figure) -> str:
    assert figure.predicted is not None
    ratio = figure.logged / figure.predicted
    if 0.45 < ratio < 0.6:
        return "half: the weights are stored in 8 bit, or twice as many ranks share them"
    if 0.2 < ratio < 0.35:
        return "a quarter: the weights are stored in 4 bit, or more ranks share them"
    if 1.8 < ratio < 2.2:
        return "double: half as many ranks share them, or they are stored wider"
    return f"{ratio:.3f} of the parameters' bytes: other parts are loaded, or left out"


def _available(start: Start, figure: Figure) -> str:
    """By what the utilisation, the sampler or the number of sequences would have to be."""
    assert figure.predicted is not None and start.request.device is not None
    missing = figure.logged - figure.predicted
    for words, changed in _log_of(start).other_memory(start.said):
        plan = plan_model(start.model, _with(start, **changed).request)
        if abs(plan.available_bytes - figure.logged) <= plan.error_bytes:
            return f"agrees with {words}"
    plan = plan_model(start.model, start.request)
    planned = plan.utilisation or 0.0
    share = planned + missing / start.request.device.usable_memory
    said = "" if "utilisation" in start.said else ", which the log does not say,"
    if 0 < share <= 1:
        return f"the utilisation{said} would have to be {share:.3f}, not {planned:.3f}"
    return f"{missing / _GIB:+.2f} GiB: not explained by utilisation, sampler or graphs"
