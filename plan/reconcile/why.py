"""Why a figure may disagree: the one other setting with which it would not."""

from collections.abc import Iterator
from dataclasses import replace

from headcount.model.errors import HeadcountError

from ..engines.engine import find_engine
from ..parallel import check_tp
from ..plan import plan_model
from ..request import STATE_MODES
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
    for kv_dtype in ("fp8", "bfloat16"):
        yield f"--kv-dtype {kv_dtype}", _with(start, kv_dtype=kv_dtype)
    for tp in (1, 2, 4, 8):
        if tp != request.tp:
            yield f"--tp {tp}", _with(start, tp=tp)
    for size in (16, 32, 64, 128):
        if size != request.block_size:
            yield f"--block-size {size}", _with(start, block_size=size)
    if request.engine == "vllm":
        for tokens in (2048, 8192, 16384):
            words = f"--max-num-batched-tokens {tokens}"
            yield words, _with(start, max_num_batched_tokens=tokens)
        for mode in STATE_MODES:
            yield f"--mamba-cache-mode {mode}", _with(start, mamba_cache_mode=mode)
        words = "--disable-hybrid-kv-cache-manager"
        yield words, _with(start, disable_hybrid_kv_cache_manager=True)
        releases = find_engine(request.engine).releases
        for version in ("0.11.0", "0.12.0", "0.19.0", "0.21.0", "0.26.0", "0.33.0"):
            yield f"the rules of {version}", _with(start, version=releases.parse(version))


def _with(start: Start, **changed: object) -> Start:
    request = replace(start.request, **changed)  # type: ignore[arg-type]
    try:
        check_tp(start.model.spec, request.tp, start.model.model_id)
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
    for words, other in _settings(start):
        plan = plan_model(start.model, other.request)
        if abs(plan.available_bytes - figure.logged) <= plan.error_bytes:
            return f"agrees with {words}"
    plan = plan_model(start.model, start.request)
    planned = plan.utilisation or 0.0
    share = planned + missing / start.request.device.usable_memory
    said = "" if "utilisation" in start.said else ", which the log does not say,"
    if 0 < share <= 1:
        return f"the utilisation{said} would have to be {share:.3f}, not {planned:.3f}"
    return f"{missing / _GIB:+.2f} GiB: not explained by utilisation, sampler or graphs"


def _settings(start: Start) -> Iterator[tuple[str, Start]]:
    if start.request.engine != "vllm":
        return
    if "sampler" not in start.said:
        yield "FlashInfer's sampler (--sampler flashinfer)", _with(start, sampler="flashinfer")
    if "max_num_seqs" not in start.said:
        for count in (256, 128, 64, 1024):
            yield f"--max-num-seqs {count}", _with(start, max_num_seqs=count)
    if "enforce_eager" not in start.said:
        yield "no CUDA graphs (--enforce-eager)", _with(start, enforce_eager=True)
