"""IDEFICS, its successors and SmolVLM."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Verification
from ..attention.layers import decoder, layer_count, side_by_side
from ..attention.mha import ENCODER_HEADS
from ..attention.shape import AttentionShape
from ..body.feed_forward import matrices
from ..body.image_towers import IDEFICS3 as IDEFICS3_TOWER
from ..body.image_towers import SMOL
from ..body.projectors import linear
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView
from ..tensors.names import BART as BART_NAMES
from ..tensors.names import UNKNOWN

# Sizes of Idefics2's resampler, and the defaults of its class.
_RESAMPLER = {
    "resampler_n_heads": 16,
    "resampler_head_dim": 96,
    "num_key_value_heads": 4,
    "resampler_n_latents": 64,
    "resampler_depth": 3,
}

IDEFICS2_TOWER = replace(SMOL, model_type="idefics2_vision")


def _to_the_image(view: ConfigView, mixer: Mixer, width: int) -> Mixer:
    assert isinstance(mixer, Attention)
    norms = 2 * mixer.head_dim * view.flag("qk_layer_norms")
    cross = side_by_side(mixer)
    return replace(cross, key_value_size=width, norm_parameters=norms, cached=False)


def image_between_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
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


def idefics2_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A gated MLP to the language model's width, and a resampler: learned latents that attend to
    themselves and to the patches."""
    hidden, width = text.integer("hidden_size"), text.integer("intermediate_size")
    sizes = view.child("perceiver_config")
    heads, d, kv, latents, depth = (
        sizes.optional(name) or default for name, default in _RESAMPLER.items()
    )
    attention = 2 * hidden * heads * d + 2 * hidden * kv * d
    layer = attention + matrices(hidden, 4 * hidden, gated=True) + 3 * hidden
    mlp = 2 * tower.integer("hidden_size") * width + width * hidden
    return mlp + (latents + 1) * hidden + depth * layer


def idefics3_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix over joined patches."""
    joined = tower.integer("hidden_size") * view.integer("scale_factor") ** 2
    return linear(joined, text.integer("hidden_size"), bias=False)


IDEFICS = Architecture(
    types=("idefics",),
    attention=AttentionShape(
        build=image_between_layers, fixed_head_dim=True, kv_heads_from="query heads"
    ),
    tensors=UNKNOWN,
    verification=Verification(scattered=True),
)
IDEFICS2 = Architecture(
    types=("idefics2",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=(IDEFICS2_TOWER,), projector=idefics2_projector),)),
)
IDEFICS2_VISION = Architecture(
    types=("idefics2_vision", "idefics3_vision"), attention=ENCODER_HEADS, tensors=BART_NAMES
)
IDEFICS3 = IDEFICS2.relative(
    "idefics3", body={"parts": (Part(towers=(IDEFICS3_TOWER,), projector=idefics3_projector),)}
)
SMOLVLM = IDEFICS2.relative(
    "smolvlm", body={"parts": (Part(towers=(SMOL,), projector=idefics3_projector),)}
)
MODERNVBERT = IDEFICS2.relative("modernvbert", "ultravbert", body=None)

ARCHITECTURES = (IDEFICS, IDEFICS2, IDEFICS2_VISION, IDEFICS3, SMOLVLM, MODERNVBERT)
