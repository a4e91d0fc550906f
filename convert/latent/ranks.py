"""What a size of latents makes of each layer: the elements that are kept of one token."""

from fractions import Fraction

from headcount.model.dtypes import BITS
from headcount.model.latent_rank import full_rank, kept_elements
from headcount.model.mixers import Attention
from headcount.model.units import format_indices

from ..attention_map.attention_tensors import Where
from ..plan.cast import CastName
from ..plan.errors import HeadCountError
from ..plan.source import ConversionSource
from .size import BytesPerToken, LatentSize, LayerRanks

_ASSUMED = "float32"  # of a config that names no type


def ranks_of(
    source: ConversionSource, size: LatentSize, dtype: CastName | None
) -> dict[Where, int]:
    """The rank of each attention of the source, whose output is stored in `dtype` (None: as it is).

    More elements than k and v read gain nothing, so that those are the most. Raises HeadCountError
    for latents that take more than keys and values, or nothing.
    """
    mixers = source.attention_map.mixers
    if isinstance(size, LayerRanks):
        _check_layers(source, size)
        return {w: _rank(source, w, mixer, size.by_layer[w[0]]) for w, mixer in mixers.items()}
    share = _one_size(source, size, dtype)
    return {where: _rank(source, where, mixer, share) for where, mixer in mixers.items()}


def mla_rank(
    source: ConversionSource,
    mixer: Attention,
    size: LatentSize,
    dtype: CastName | None,
    rotated: int,
) -> int:
    """The latent's rank where `rotated` elements are kept beside it, in every layer. Raises
    HeadCountError likewise."""
    if isinstance(size, LayerRanks):
        raise HeadCountError(
            f"{source.label}: the class of --home mla has one size for all layers: leave out"
            " --home, or give --latent one number"
        )
    kept = kept_elements(mixer)
    share = _one_size(source, size, dtype)
    elements = share if isinstance(share, int) else int(share * kept)
    if not rotated < elements <= kept:
        raise HeadCountError(
            f"{source.label}: a layer keeps {kept_in_words(mixer)}, and {rotated:,} of the"
            f" {elements:,} asked for are a key that rotates: --latent can be {rotated + 1:,} to"
            f" {min(kept, full_rank(mixer) + rotated):,} with --home mla"
        )
    return min(elements - rotated, full_rank(mixer))


def cache_bits(source: ConversionSource, dtype: CastName | None) -> int:
    """Of an element of the cache, in the type that the output is stored in."""
    return BITS[dtype or source.audit.spec.dtype or _ASSUMED]


def kept_in_words(mixer: Attention) -> str:
    """`512 elements of a token (256 of keys, 256 of values)`."""
    keys, values = (mixer.num_key_value_heads * dim for dim in (mixer.head_dim, mixer.v_head_dim))
    return f"{keys + values:,} elements of a token ({keys:,} of keys, {values:,} of values)"


def _most(mixer: Attention) -> str:
    """The largest latent that is of use, and why it is."""
    most = full_rank(mixer)
    if most == kept_elements(mixer):
        return f"{most:,}, at which nothing is lost"
    return f"{most:,}: keys and values are made of {most:,} elements, so that no more is of use"


def _check_layers(source: ConversionSource, size: LayerRanks) -> None:
    there = {index for index, _ in source.attention_map.mixers}
    strangers, lacking = size.by_layer.keys() - there, there - size.by_layer.keys()
    if strangers:
        last = max(layer.index for layer in source.audit.spec.layers)
        named = min(strangers)
        what = "there is no" if named > last else "no keys and values are kept by"
        raise HeadCountError(f"{source.label}: {what} layer {named}, which --latent names")
    if lacking:
        raise HeadCountError(
            f"{source.label}: --latent says no rank for layer {min(lacking)}: all layers that keep"
            f" keys and values need one ({format_indices(sorted(there))})"
        )


def _one_size(source: ConversionSource, size: LatentSize, dtype: CastName | None) -> int | Fraction:
    """A rank or a share for all layers."""
    if isinstance(size, BytesPerToken):
        return _share(source, size, dtype)
    assert isinstance(size, int | Fraction)  # a budget is settled before
    return size


def _share(source: ConversionSource, size: BytesPerToken, dtype: CastName | None) -> Fraction:
    bits = cache_bits(source, dtype)
    elements = sum(map(kept_elements, source.attention_map.mixers.values()))
    if 8 * size.nbytes > bits * elements:
        raise HeadCountError(
            f"{source.label}: keeps {bits * elements // 8:,} bytes a token: latents of"
            f" {size.nbytes:,} bytes save nothing"
        )
    return Fraction(8 * size.nbytes, bits * elements)


def _rank(source: ConversionSource, where: Where, mixer: Attention, size: int | Fraction) -> int:
    kept = kept_elements(mixer)
    rank = size if isinstance(size, int) else int(size * kept)
    if rank < 1:
        raise HeadCountError(
            f"{source.label}: layer {where[0]} keeps {kept_in_words(mixer)}, and what is asked for"
            f" ({size} of them) is less than one"
        )
    if rank > kept:
        raise HeadCountError(
            f"{source.label}: layer {where[0]} keeps {kept_in_words(mixer)}: a latent of {rank:,}"
            f" saves nothing; --latent can be 1 to {_most(mixer)}"
        )
    return min(rank, full_rank(mixer))
