"""The same plan with fewer, or more, K/V heads, or a latent as of MLA: what a conversion buys."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, LatentAttention, LowRankAttention, Mixer
from headcount.model.pruned_heads import PrunedShare, shapes_left
from headcount.model.spec import Layer, ModelSpec

from .parallel import valid_tp
from .plan import Plan, plan_workload

LATENTS = (512, 256)  # kv_lora_rank: that of DeepSeek-V2 and V3, and half of it
ROTATED = 64  # qk_rope_head_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """`num_key_value_heads` is None where it differs between layers. `spec` has the changed layers;
    `parameters_change` is what q, k, v and o projections grow (or, negative, shrink) by; with
    `cache_only` the weights are those of the model as it is."""

    name: str
    num_key_value_heads: int | None
    group_size: int | None
    is_current: bool
    spec: ModelSpec
    parameters_change: int
    cache_only: bool = False
    query_heads: int | None = None  # of each attention, where some were pruned

    def allows(self, tp: int) -> bool:
        return tp in valid_tp(self.spec)


def variants(spec: ModelSpec) -> tuple[Variant, ...]:
    """From one K/V head per query head over the present number down to one; empty for encoders, and
    for a drafting model that only reads the cache of another.

    Models with latent attention have no K/V heads to change: the only other row is the cache of
    the keys and values that the latent expands to.
    """
    mixers = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    changeable = [mixer for mixer in mixers if _is_changeable(mixer)]
    if any(isinstance(m, LowRankAttention) for layer in spec.layers for m in layer.mixers):
        return (_variant("latent", spec, spec),)
    if any(isinstance(m, LatentAttention) for layer in spec.layers for m in layer.mixers):
        return (_expanded(spec), _variant("MLA", spec, spec))
    if not any(mixer.has_key_value for mixer in changeable):
        return ()
    counts = {(m.num_attention_heads, m.num_key_value_heads) for m in changeable}
    if len(counts) > 1:
        return _uneven(spec, all(heads == kv for heads, kv in counts))
    ((heads, present),) = counts
    return tuple(_with_heads(spec, n) for n in chain(heads, present))


def chain(heads: int, present: int) -> tuple[int, ...]:
    """`heads`, the present number, and on down to 1, each a divisor of the one before: the halves
    where it is even. For 12 and 12: 12, 6, 3, 1."""
    found = [heads] if present == heads else [heads, present]
    while found[-1] > 1:
        last = found[-1]
        found.append(last // next(p for p in range(2, last + 1) if last % p == 0))
    return tuple(found)


def _is_changeable(mixer: Mixer) -> bool:
    return isinstance(mixer, Attention) and mixer.keeps_key_value


def _with_heads(spec: ModelSpec, count: int) -> Variant:
    changed = _changed(spec, lambda mixer: count)
    name = "MQA" if count == 1 else "GQA"
    if all(m.heads == "MHA" for layer in changed.layers for m in layer.mixers if _is_changeable(m)):
        name = "MHA"
    return _variant(name, spec, changed, count)


def _uneven(spec: ModelSpec, all_mha: bool) -> tuple[Variant, ...]:
    """Layers with different heads: only the two ends are a number for all of them."""
    mha = _changed(spec, lambda mixer: mixer.num_attention_heads)
    rows = [_variant("MHA", spec, mha), _variant("mixed", spec, spec)]
    mqa = _changed(spec, lambda mixer: 1)
    return (*(rows[1:] if all_mha else rows), _variant("MQA", spec, mqa, 1))


def _changed(spec: ModelSpec, heads: Callable[[Attention], int]) -> ModelSpec:
    def change(mixer: Mixer) -> Mixer:
        if isinstance(mixer, Attention) and mixer.keeps_key_value:
            return mixer.with_key_value_heads(heads(mixer))
        return mixer

    return _with_layers(spec, change)


def _with_layers(spec: ModelSpec, change: Callable[[Mixer], Mixer]) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        return replace(layer, mixers=tuple(change(mixer) for mixer in layer.mixers))

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def _variant(name: str, before: ModelSpec, after: ModelSpec, heads: int | None = None) -> Variant:
    mixers = [m for layer in after.layers for m in layer.mixers if isinstance(m, Attention)]
    group_sizes = {mixer.group_size for mixer in mixers if _is_changeable(mixer)}
    return Variant(
        name=name,
        num_key_value_heads=heads,
        group_size=group_sizes.pop() if heads and len(group_sizes) == 1 else None,
        is_current=before.layers == after.layers,
        spec=after,
        parameters_change=_projections(after) - _projections(before),
    )


def _projections(spec: ModelSpec) -> int:
    parts = [layer.parameters() for layer in spec.layers]
    return sum(part.q + part.k + part.v + part.o for part in parts)


def pruned_variants(spec: ModelSpec, wanted: PrunedShare, where: str) -> Iterator[Variant]:
    """The model without `wanted` query heads of each layer: a row for each number of K/V heads that
    can be left. Raises HeadcountError where layers differ in heads, or that number cannot go."""
    mixers = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    changeable = [mixer for mixer in mixers if _is_changeable(mixer) and mixer.has_key_value]
    counts = {(m.num_attention_heads, m.num_key_value_heads) for m in changeable}
    if len(counts) != 1:
        what = "its layers differ in heads" if counts else "it has no K/V heads"
        raise HeadcountError(f"{where}: {what}, so that --prune-heads says nothing of them all")
    for count, each in shapes_left(changeable[0], wanted, f"{where}: each layer"):

        def prune(mixer: Mixer, count: int = count, each: int = each) -> Mixer:
            if not isinstance(mixer, Attention) or not _is_changeable(mixer):
                return mixer
            return replace(mixer.with_key_value_heads(count), num_attention_heads=count * each)

        after = _with_layers(spec, prune)
        kind = "MHA" if each == 1 else "MQA" if count == 1 else "GQA"
        name = f"{kind}, {count * each} of {changeable[0].num_attention_heads} query heads"
        yield replace(_variant(name, spec, after, count), query_heads=count * each)


def _expanded(spec: ModelSpec) -> Variant:
    """MLA whose keys and values are cached as its heads use them; its weights stay the same."""

    def expand(mixer: Mixer) -> Mixer:
        if not isinstance(mixer, LatentAttention):
            return mixer
        return Attention(
            hidden_size=mixer.hidden_size,
            num_attention_heads=mixer.num_attention_heads,
            num_key_value_heads=mixer.num_attention_heads,
            head_dim=mixer.head_dim,
            v_head_dim=mixer.v_head_dim,
            window=mixer.window,
            states=mixer.states,
        )

    expanded = _variant("MHA, expanded", spec, _with_layers(spec, expand))
    return replace(expanded, parameters_change=0, cache_only=True)


class VariantPlan(NamedTuple):
    """`plan` is None where tp does not suit the variant's K/V heads. `mha_ratio` is the cache of
    one K/V head per query head over the variant's, both undivided; `copies` is how many ranks store
    the same K/V head, or latent."""

    variant: Variant
    plan: Plan | None
    mha_ratio: float
    copies: int

    @property
    def waste_bytes(self) -> int:
        """Bytes of all ranks' cache memory that hold copies. Wants a plan with a device."""
        if self.plan is None:
            return 0
        whole = max(0, self.plan.available_bytes) * self.plan.request.tp
        return whole - whole // self.copies


def variant_plans(plan: Plan, pruned: PrunedShare | None = None) -> tuple[VariantPlan, ...]:
    """`plan` with each number of K/V heads, the most first; of an engine, also with latents that
    keep less than the model does; and without `pruned` query heads. Raises HeadcountError for a
    number of these that cannot go."""
    found = variants(plan.spec)
    present = next((row for row in found if row.is_current), None)
    whole = _undivided(found[0].spec, plan) if found else 0  # the first row is MHA
    rows = [_variant_plan(plan, variant, whole) for variant in found]
    if plan.engine.starts and present is not None and present.num_key_value_heads is not None:
        tried = (_variant_plan(plan, _with_latent(plan.spec, rank), whole) for rank in LATENTS)
        most = plan.bytes_per_token
        rows += [row for row in tried if row.plan and row.plan.bytes_per_token < most]
    if pruned is not None:
        without = pruned_variants(plan.spec, pruned, plan.model.model_id or plan.spec.model_type)
        rows += [_variant_plan(plan, variant, whole) for variant in without]
    return tuple(rows)


def _variant_plan(plan: Plan, variant: Variant, whole: int) -> VariantPlan:
    tp, heads = plan.request.attention_tp, variant.num_key_value_heads
    return VariantPlan(
        variant=variant,
        plan=_planned(variant, plan) if variant.allows(tp) else None,
        mha_ratio=whole / _undivided(variant.spec, plan),
        copies=max(1, tp // heads) if heads else tp if variant.cache_only else 1,
    )


def _undivided(spec: ModelSpec, plan: Plan) -> int:
    """Bytes of a sequence's cache on one rank."""
    work = plan.workload
    encoder = work.encoder_tokens
    return spec.cache_bytes(
        tokens=work.context, bits=work.kv_bits, encoder_tokens=encoder, engine="serving"
    )


def _planned(variant: Variant, plan: Plan) -> Plan:
    """Where only the cache changes, the memory that is left stays what it is."""
    if variant.is_current:
        return plan
    model, weights = replace(plan.model, spec=variant.spec), plan.weights
    if variant.cache_only:
        return replace(plan, model=model, pool=plan.engine.pool(model, plan.workload))
    changed = weights.changed(variant.parameters_change) if weights else None
    return plan_workload(model, plan.engine, replace(plan.workload, weights=changed))


def conversions(rows: Sequence[VariantPlan]) -> tuple[VariantPlan, ...]:
    """The model as it is and what keeps less, where it has K/V heads of one number."""
    present = next((n for n, row in enumerate(rows) if row.variant.is_current), None)
    if present is None or rows[present].variant.num_key_value_heads is None:
        return ()
    found = (row for row in rows[present:] if row.variant.query_heads is None)
    return tuple(row for row in found if row.plan is not None)


def _with_latent(spec: ModelSpec, rank: int) -> Variant:
    """The weights are taken for those of the model."""

    def latent(mixer: Mixer) -> Mixer:
        if type(mixer) is not Attention or not mixer.cached or not mixer.has_key_value:
            return mixer
        return LatentAttention(
            hidden_size=mixer.hidden_size,
            num_attention_heads=mixer.num_attention_heads,
            q_lora_rank=None,
            kv_lora_rank=rank,
            qk_nope_head_dim=mixer.head_dim,
            qk_rope_head_dim=ROTATED,
            v_head_dim=mixer.v_head_dim,
            window=mixer.window,
        )

    changed = _variant(f"MLA, latent of {rank} + {ROTATED}", spec, _with_layers(spec, latent))
    return replace(changed, parameters_change=0, cache_only=True)
