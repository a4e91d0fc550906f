"""The single changes that would make a plan fit, the mildest first."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from headcount.model.errors import HeadcountError
from headcount.model.units import key_value_heads

from .parallel import valid_tp
from .plan import Plan, plan_model
from .what_if.rows import VariantPlan, conversions

_MEANT = 4  # a context that is shorter by this factor is offered last
_MOST_UTILISATION = 0.95  # beyond it, CUDA graphs and other processes find no room


class Change(NamedTuple):
    """`value` is what `what` would have to be; `text` says it in words; `plan` is the result."""

    what: str
    value: int | float | str
    text: str
    plan: Plan

    @property
    def is_sure(self) -> bool:
        """Whether it fits even if all estimates err, as `--require fits` takes it."""
        return self.plan.verdict == "fits"

    def document(self) -> dict[str, object]:
        return {
            "change": self.what,
            "value": self.value,
            "text": self.text,
            "verdict": self.plan.verdict,
            "kv_tokens": self.plan.kv_tokens,
            "concurrency": round(self.plan.concurrency, 2),
        }


def changes(plan: Plan, variants: Sequence[VariantPlan]) -> tuple[Change, ...]:
    """Each single change that makes `plan` surely fit, by the least amount that does; () if it
    does by itself. Where none does, those that make it borderline, if it is not so by itself.

    From what costs nothing (a larger share of memory, fewer sequences) over what costs precision
    or length to what needs more devices or another checkpoint; a far shorter context last.
    """
    if plan.verdict == "fits":
        return ()
    kinds: tuple[Callable[[Plan], Iterator[Change]], ...] = (
        _utilisation,
        _sequences,
        _cache_type,
        _context,
        _whole_experts,
        _tp,
        _weight_type,
    )
    tried = [tuple(_until_sure(kind(plan))) for kind in kinds]
    tried += [tuple(_until_sure(kind(variants))) for kind in (_latent, _conversion)]
    sure = [found[-1] for found in tried if found and found[-1].is_sure]
    if sure or plan.verdict == "borderline":
        return _useful_first(plan, sure)
    return _useful_first(plan, [found[0] for found in tried if found])


def _useful_first(plan: Plan, found: Sequence[Change]) -> tuple[Change, ...]:
    """A context of a fraction of what was asked for is hardly what was meant."""

    def comes_last(change: Change) -> bool:
        return change.what == "context" and _MEANT * int(change.value) < plan.workload.context

    return tuple(sorted(found, key=comes_last))


def _until_sure(found: Iterator[Change]) -> Iterator[Change]:
    for change in found:
        yield change
        if change.is_sure:
            return


def _try(plan: Plan, what: str, value: int | float | str, text: str) -> Iterator[Change]:
    """`what` is a field of the request. One that does not go with the others is none, nor is one
    that no command of the engine's says, where one says the plan."""
    request = replace(plan.request, **{what: value})  # type: ignore[arg-type]
    try:
        changed = plan_model(plan.model, request)
    except HeadcountError:
        return
    may_fit = changed.verdict in ("fits", "borderline")
    if may_fit and (changed.launch_command or not plan.launch_command):
        yield Change(what=what, value=value, text=text, plan=changed)


def _utilisation(plan: Plan) -> Iterator[Change]:
    share = plan.utilisation
    if share is None:
        return
    for percent in range(int(share * 100) + 1, int(_MOST_UTILISATION * 100) + 1):
        value = percent / 100
        yield from _try(plan, "utilisation", value, f"utilisation {value:.2f}")


def _sequences(plan: Plan) -> Iterator[Change]:
    """As many as are to run at once; or fewer, of an engine that profiles the sampler for as many
    as it may run."""
    if not plan.runs_at_once:
        value, has_slots = plan.workload.batch_size, "parallel" in plan.engine.options
        what, words = ("parallel", "slots") if has_slots else ("max_num_seqs", "sequences a step")
        yield from _try(plan, what, value, f"{value:,} {words}")
        return
    if not plan.engine.profiles_sequences or plan.budget is None:
        return
    value = 512
    while value >= max(16, plan.workload.batch_size):
        if value < (plan.request.max_num_seqs or 1024):
            yield from _try(plan, "max_num_seqs", value, f"at most {value} sequences a step")
        value //= 2


def _cache_type(plan: Plan) -> Iterator[Change]:
    for name in plan.engine.narrower_caches:
        yield from _try(plan, "kv_dtype", name, f"a cache of {name}")


def _context(plan: Plan) -> Iterator[Change]:
    """The longest that surely fits, or by the estimates as they stand."""
    longest = plan.spec.max_position_embeddings
    for found in (plan.low.limits.max_context, plan.limits.max_context):
        most = min(found, longest or found) if found else 0
        if 0 < most < plan.workload.context:
            yield from _try(plan, "context", most, f"a context of {most:,} tokens")


def _whole_experts(plan: Plan) -> Iterator[Change]:
    """Where experts do not split, each of them on one rank."""
    if plan.can_spread_experts and plan.refusals:
        text = "experts dealt to the ranks whole (--enable-expert-parallel)"
        yield from _try(plan, "enable_expert_parallel", True, text)


def _tp(plan: Plan) -> Iterator[Change]:
    if plan.request.kv_memory is not None:
        return
    for tp in valid_tp(plan.spec):
        if plan.request.tp < tp <= 64:
            yield from _try(plan, "tp", tp, f"{tp} devices (tensor parallel, --tp {tp})")


def _weight_type(plan: Plan) -> Iterator[Change]:
    if plan.request.kv_memory is not None or plan.spec.parameters is None:
        return
    names = plan.engine.narrower_weights
    if "quantization_config" in plan.model.config or plan.request.dtype in names:
        return
    for name in names:
        short = "fp8" if name == "float8_e4m3fn" else name
        yield from _try(plan, "dtype", name, f"weights of {short} (--dtype {short})")


def _latent(variants: Sequence[VariantPlan]) -> Iterator[Change]:
    """A cache of latents, which costs a model less than heads that are merged."""
    for row in conversions(variants):
        made, plan = row.variant.latent, row.plan
        if made is not None and plan is not None and plan.verdict in ("fits", "borderline"):
            text = f"{row.variant.name} (headcount convert {made})"
            yield Change(what="latent", value=made.split()[1], text=text, plan=plan)


def _conversion(variants: Sequence[VariantPlan]) -> Iterator[Change]:
    """Fewer K/V heads: another checkpoint, which `headcount convert` makes."""
    for row in conversions(variants):
        heads, plan = row.variant.num_key_value_heads, row.plan
        if heads is not None and plan is not None and plan.verdict in ("fits", "borderline"):
            text = f"{key_value_heads(heads)} (headcount convert --kv-heads {heads})"
            yield Change(what="num_key_value_heads", value=heads, text=text, plan=plan)
