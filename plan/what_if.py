"""The same plan with fewer, or more, K/V heads: what a conversion would buy."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import Layer, ModelSpec

from .cache import rank_cache
from .memory import Rank, plan_rank
from .parallel import valid_tp
from .request import Workload
from .weights import Weights


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """`num_key_value_heads` is None where it differs between layers. `spec` has the changed layers;
    `parameters_change` is what k and v projections grow (or, negative, shrink) by; with
    `cache_only` the weights are those of the model as it is."""

    name: str
    num_key_value_heads: int | None
    group_size: int | None
    is_current: bool
    spec: ModelSpec
    parameters_change: int
    cache_only: bool = False

    def allows(self, tp: int) -> bool:
        return tp in valid_tp(self.spec)


def variants(spec: ModelSpec) -> tuple[Variant, ...]:
    """From one K/V head per query head over the present number down to one; empty for encoders.

    Models with latent attention have no K/V heads to change: the only other row is the cache of
    the keys and values that the latent expands to.
    """
    mixers = [m for layer in spec.layers for m in layer.mixers if isinstance(m, Attention)]
    changeable = [mixer for mixer in mixers if _is_changeable(mixer)]
    if any(isinstance(m, LatentAttention) for layer in spec.layers for m in layer.mixers):
        return (_expanded(spec), _variant("MLA", spec, spec))
    if not changeable:
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
        parameters_change=_keys_and_values(after) - _keys_and_values(before),
    )


def _keys_and_values(spec: ModelSpec) -> int:
    parts = [layer.parameters() for layer in spec.layers]
    return sum(part.k + part.v for part in parts)


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


def variant_rank(
    variant: Variant, spec: ModelSpec, workload: Workload, weights: Weights, tp: int
) -> Rank:
    """What one of `tp` ranks holds of the variant; `weights` are those of `spec`, as it is."""
    if not variant.cache_only:
        changed = weights.changed(variant.parameters_change)
        return plan_rank(variant.spec, workload, changed, tp)
    cache = rank_cache(
        variant.spec, tp=tp, encoder_tokens=workload.encoder_tokens, bits=workload.kv_bits
    )
    return replace(plan_rank(spec, workload, weights, tp), cache=cache)
