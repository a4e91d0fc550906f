"""Which attentions of a decoder have K/V heads of their own."""

from collections.abc import Mapping

from .mixers import Attention, CrossAttention, LatentAttention, LowRankAttention
from .spec import ModelSpec


def attentions(spec: ModelSpec) -> dict[tuple[int, bool], Attention]:
    """Every attention of the decoder that has K/V heads and weights of its own, by the number of
    its layer and whether it is cross-attention."""
    return {
        (layer.index, isinstance(mixer, CrossAttention)): mixer
        for layer in spec.layers
        if layer.stack == "decoder"
        for mixer in layer.mixers
        if isinstance(mixer, Attention) and mixer.has_key_value and mixer.owns_parameters
    }


def readers_of(spec: ModelSpec) -> dict[int, int]:
    """Each layer that reads another's cache, with that one."""
    shares = {layer.index: layer.shares_cache_with for layer in spec.layers}
    return {index: owner for index, owner in shares.items() if owner is not None}


def no_key_value_heads(
    spec: ModelSpec, attentions: Mapping[tuple[int, bool], Attention]
) -> str | None:
    """Why a model of the decoder's `attentions` keeps no K/V heads; None: it keeps some. Latents
    before encoders: the first are more of a surprise."""
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    is_rebuilt = any(isinstance(mixer, LowRankAttention) for mixer in mixers)
    is_mla = any(isinstance(mixer, LatentAttention) for mixer in mixers)
    reasons: dict[str, bool] = {
        "its cache holds latents already: convert the model that it was made from": is_rebuilt,
        "latent attention (MLA) keeps one latent for all heads already; no K/V heads are left": (
            is_mla
        ),
        "an encoder keeps no K/V cache: fewer heads save nothing": not spec.is_cached,
        "its state is not made of K/V heads (recurrent layers, say), so there are none to merge": (
            not attentions
        ),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)
