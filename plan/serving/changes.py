"""The single changes that would make a plan fit, the mildest first."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headcount.model.spec import ModelSpec

from ..parallel import valid_tp
from ..what_if import variants
from .planning import ServingPlan, plan_serving
from .request import ServingRequest, Subject

_MOST_UTILISATION = 0.95  # beyond it, CUDA graphs and other processes find no room
_CACHE_TYPES = {"vllm": ("fp8",), "sglang": ("fp8",), "llama.cpp": ("q8_0", "q4_0")}
_WEIGHT_TYPES = ("float8_e4m3fn", "int4")


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """`value` is what `what` would have to be; `text` says it in words; `plan` is the result."""

    what: str
    value: int | float | str
    text: str
    plan: ServingPlan

    def document(self) -> dict[str, object]:
        return {
            "change": self.what,
            "value": self.value,
            "text": self.text,
            "kv_tokens": self.plan.kv_tokens,
            "concurrency": round(self.plan.concurrency, 2),
        }


def changes(plan: ServingPlan) -> tuple[Change, ...]:
    """Each single change that makes `plan` fit, by the least amount that does; () if it fits.

    From what costs nothing (a larger share of memory, fewer sequences) over what costs precision
    or length to what needs more devices or another checkpoint.
    """
    if plan.fits:
        return ()
    kinds: tuple[Callable[[ServingPlan], Iterator[Change]], ...] = (
        _utilisation,
        _sequences,
        _cache_type,
        _context,
        _tp,
        _weight_type,
        _conversion,
    )
    return tuple(found for kind in kinds if (found := next(kind(plan), None)) is not None)


def _try(
    plan: ServingPlan, what: str, value: int | float | str, text: str, request: ServingRequest
) -> Iterator[Change]:
    changed = plan_serving(plan.subject, request)
    if changed.fits:
        yield Change(what=what, value=value, text=text, plan=changed)


def _utilisation(plan: ServingPlan) -> Iterator[Change]:
    share = plan.share
    if share is None:
        return
    for percent in range(int(share * 100) + 1, int(_MOST_UTILISATION * 100) + 1):
        value = percent / 100
        request = replace(plan.request, utilisation=value)
        yield from _try(plan, "utilisation", value, f"utilisation {value:.2f}", request)


def _sequences(plan: ServingPlan) -> Iterator[Change]:
    """vLLM profiles the sampler for as many sequences as it may run."""
    if plan.request.engine != "vllm" or plan.budget is None:
        return
    value = 512
    while value >= max(16, plan.workload.batch_size):
        if value < (plan.request.max_num_seqs or 1024):
            request = replace(plan.request, max_num_seqs=value)
            yield from _try(
                plan, "max_num_seqs", value, f"at most {value} sequences a step", request
            )
        value //= 2


def _cache_type(plan: ServingPlan) -> Iterator[Change]:
    if plan.request.kv_dtype not in (None, "auto") and plan.workload.kv_bits < 16:
        return
    for name in _CACHE_TYPES.get(plan.request.engine, ()):
        request = replace(plan.request, kv_dtype=name)
        yield from _try(plan, "kv_dtype", name, f"a cache of {name}", request)


def _context(plan: ServingPlan) -> Iterator[Change]:
    most = plan.max_context
    if 0 < most < plan.workload.context:
        request = replace(plan.request, context=most)
        yield from _try(plan, "context", most, f"a context of {most:,} tokens", request)


def _tp(plan: ServingPlan) -> Iterator[Change]:
    if plan.request.kv_memory is not None:
        return
    for tp in valid_tp(plan.subject.spec):
        if plan.request.tp < tp <= 64:
            request = replace(plan.request, tp=tp)
            yield from _try(plan, "tp", tp, f"{tp} devices (tensor parallel)", request)


def _weight_type(plan: ServingPlan) -> Iterator[Change]:
    if plan.request.kv_memory is not None or plan.subject.spec.parameters is None:
        return
    if "quantization_config" in plan.subject.config or plan.request.dtype in _WEIGHT_TYPES:
        return
    for name in _WEIGHT_TYPES:
        request = replace(plan.request, dtype=name, kv_dtype=plan.request.kv_dtype or "bfloat16")
        yield from _try(plan, "dtype", name, f"weights of {name}", request)


def _conversion(plan: ServingPlan) -> Iterator[Change]:
    """Fewer K/V heads: another checkpoint, which `headcount convert` makes."""
    for heads, subject in converted(plan.subject, plan.request.tp):
        changed = plan_serving(subject, plan.request)
        if changed.fits:
            text = f"{heads} K/V heads (headcount convert --kv-heads {heads})"
            yield Change(what="num_key_value_heads", value=heads, text=text, plan=changed)


def converted(subject: Subject, tp: int) -> Iterator[tuple[int, Subject]]:
    """The model with fewer K/V heads, the most first, where `tp` suits them."""
    found = variants(subject.spec)
    present = next((row for row in found if row.is_current), None)
    if present is None or present.num_key_value_heads is None:
        return
    for row in found[found.index(present) + 1 :]:
        if row.num_key_value_heads is not None and row.allows(tp):
            yield row.num_key_value_heads, _with(subject, row.spec, row.parameters_change)


def _with(subject: Subject, spec: ModelSpec, change: int) -> Subject:
    known, stored = subject.spec.parameters, subject.weights_bytes
    parameters = None if known is None else known + change
    smaller = stored * parameters // known if stored and known and parameters else stored
    return replace(subject, spec=replace(spec, parameters=parameters), weights_bytes=smaller)
