"""Decoders that something else feeds at odd places: an image between layers, tokens in front of the
text, patches of bytes."""

from collections.abc import Iterator
from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..attention.layers import attention, decoder, layer_count, side_by_side
from ..attention.shape import AttentionShape
from ..config_view import ConfigView


def idefics(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """IDEFICS (arXiv 2204.14198): in front of one in `cross_layer_interval` layers, a gated block
    attends to the image. It keeps nothing: the image is projected again for every token."""
    step, vision = view.optional("cross_layer_interval") or 1, view.child("vision_config")
    count = layer_count(view) // step
    width = vision.optional("hidden_size") or vision.integer("embed_dim")
    return tuple(
        replace(layer, mixers=(*layer.mixers, _to_the_image(view, layer.mixers[0], width)))
        if layer.index % step == 0 and layer.index // step < count
        else layer
        for layer in decoder(shape, view)
    )


def _to_the_image(view: ConfigView, mixer: Mixer, width: int) -> Mixer:
    assert isinstance(mixer, Attention)
    norms = 2 * mixer.head_dim * view.flag("qk_layer_norms")
    cross = side_by_side(mixer)
    return replace(cross, key_value_size=width, norm_parameters=norms, cached=False)


def musicgen_melody(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """MusicGen Melody: the encoded text and melody stand in front of the tokens, and are kept as
    they are."""

    def with_prefix(mixer: Mixer) -> Attention:
        assert isinstance(mixer, Attention)
        kept = State(
            per_token=mixer.num_key_value_heads * (mixer.head_dim + mixer.v_head_dim),
            limit=mixer.window and mixer.window - 1,
            sees="both",
            key_value=True,
        )
        return replace(mixer, cached=False, states=(kept,))

    return tuple(
        replace(layer, mixers=tuple(with_prefix(mixer) for mixer in layer.mixers))
        for layer in decoder(shape, view)
    )


def blt(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Byte Latent Transformer (arXiv 2412.09871): a local encoder and a local decoder of bytes,
    each with a cache, around a global model of patches, which keeps nothing. Patches are the
    queries of the encoder's cross-attention, and what the decoder's attends to; neither is kept. A
    small model of its own finds where patches end."""
    return (
        *_local(shape, view.child("encoder_config"), "encoder", last=True),
        *_uncached(shape, view.child("global_config"), "global"),
        *_local(shape, view.child("decoder_config"), "decoder", last=False),
        *(
            _uncached(shape, view.child("patcher_config"), "patcher")
            if view.flag("patch_in_forward")
            else ()
        ),
    )


def _local(shape: AttentionShape, view: ConfigView, stack: str, *, last: bool) -> Iterator[Layer]:
    """Every layer crosses with `cross_attn_all_layers`, else the `last` or the first alone."""
    own, count = attention(shape, view), layer_count(view)
    norms = 2 * own.hidden_size
    cross = replace(side_by_side(own), norm_parameters=norms, cached=False)
    only = None if view.flag("cross_attn_all_layers") else count - 1 if last else 0
    for index in range(count):
        mixers = (own, cross) if only in (None, index) else (own,)
        yield Layer(index=index, mixers=mixers, stack=stack)


def _uncached(shape: AttentionShape, view: ConfigView, stack: str) -> Iterator[Layer]:
    mixer = replace(attention(shape, view), cached=False)
    return (Layer(index=i, mixers=(mixer,), stack=stack) for i in range(layer_count(view)))
