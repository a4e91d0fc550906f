"""A model with fewer, or more, K/V heads: what a conversion makes of its layers."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, LatentAttention, LowRankAttention, Mixer
from headcount.model.pruned_heads import PrunedShare, shapes_left
from headcount.model.spec import Layer, ModelSpec

from ..parallel import valid_tp


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """`num_key_value_heads` is None where it differs between layers. `spec` has the changed layers;
    `parameters_change` is what attention grows (or, negative, shrinks) by; with
    `cache_only` the weights are those of the model as it is."""

    name: str
    num_key_value_heads: int | None
    group_size: int | None
    is_current: bool
    spec: ModelSpec
    parameters_change: int
    cache_only: bool = False
    query_heads: int | None = None  # of each attention, where some were pruned
    latent: str | None = None  # the options of `headcount convert` that make it

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
        return (variant_of("latent", spec, spec),)
    if any(isinstance(m, LatentAttention) for layer in spec.layers for m in layer.mixers):
        return (_expanded(spec), variant_of("MLA", spec, spec))
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
    return variant_of(name, spec, changed, count)


def _uneven(spec: ModelSpec, all_mha: bool) -> tuple[Variant, ...]:
    """Layers with different heads: only the two ends are a number for all of them."""
    mha = _changed(spec, lambda mixer: mixer.num_attention_heads)
    rows = [variant_of("MHA", spec, mha), variant_of("mixed", spec, spec)]
    mqa = _changed(spec, lambda mixer: 1)
    return (*(rows[1:] if all_mha else rows), variant_of("MQA", spec, mqa, 1))


def _changed(spec: ModelSpec, heads: Callable[[Attention], int]) -> ModelSpec:
    def change(mixer: Mixer) -> Mixer:
        if isinstance(mixer, Attention) and mixer.keeps_key_value:
            return mixer.with_key_value_heads(heads(mixer))
        return mixer

    return with_layers(spec, change)


def with_layers(spec: ModelSpec, change: Callable[[Mixer], Mixer]) -> ModelSpec:
    def changed(layer: Layer) -> Layer:
        return replace(layer, mixers=tuple(change(mixer) for mixer in layer.mixers))

    return replace(spec, layers=tuple(changed(layer) for layer in spec.layers))


def variant_of(name: str, before: ModelSpec, after: ModelSpec, heads: int | None = None) -> Variant:
    mixers = [m for layer in after.layers for m in layer.mixers if isinstance(m, Attention)]
    group_sizes = {mixer.group_size for mixer in mixers if _is_changeable(mixer)}
    return Variant(
        name=name,
        num_key_value_heads=heads,
        group_size=group_sizes.pop() if heads and len(group_sizes) == 1 else None,
        is_current=before.layers == after.layers,
        spec=after,
        parameters_change=_parameters(after) - _parameters(before),
    )


def _parameters(spec: ModelSpec) -> int:
    """Of all that mixes tokens."""
    return sum(layer.parameters().total for layer in spec.layers)


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

        after = with_layers(spec, prune)
        kind = "MHA" if each == 1 else "MQA" if count == 1 else "GQA"
        name = f"{kind}, {count * each} of {changeable[0].num_attention_heads} query heads"
        yield replace(variant_of(name, spec, after, count), query_heads=count * each)


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

    expanded = variant_of("MHA, expanded", spec, with_layers(spec, expand))
    return replace(expanded, parameters_change=0, cache_only=True)
