"""IDEFICS, whose layers attend to the image in between, its successors and SmolVLM."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, Verification
from ..attention.layers import cross_attention_beside, decoder_layers, layer_count
from ..attention.shape import AttentionShape
from ..attention.shared import MHA
from ..body.feed_forward import matrices
from ..body.image_towers import IDEFICS3_TOWER, SMOLVLM_TOWER
from ..body.projectors import linear
from ..body.towers import fixed_tower
from ..config_view import ConfigView
from ..encoders.clip import CLIP_ENCODER
from ..tensors.names import UNKNOWN_NAMES

# Sizes of Idefics2's resampler, and the defaults of its class.
_RESAMPLER = {
    "resampler_n_heads": 16,
    "resampler_head_dim": 96,
    "num_key_value_heads": 4,
    "resampler_n_latents": 64,
    "resampler_depth": 3,
}


def _to_the_image(view: ConfigView, mixer: Mixer, width: int) -> Mixer:
    assert isinstance(mixer, Attention)
    norms = 2 * mixer.head_dim * view.flag("qk_layer_norms")
    cross = cross_attention_beside(mixer)
    return replace(cross, key_value_size=width, norm_parameters=norms, cached=False)


def idefics_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """IDEFICS (arXiv 2204.14198): in front of one in `cross_layer_interval` layers, a gated block
    attends to the image. It keeps nothing: the image is projected again for every token."""
    step, vision = view.optional("cross_layer_interval") or 1, view.child("vision_config")
    count = layer_count(view) // step
    width = vision.optional("hidden_size") or vision.integer("embed_dim")
    return tuple(
        replace(layer, mixers=(*layer.mixers, _to_the_image(view, layer.mixers[0], width)))
        if layer.index % step == 0 and layer.index // step < count
        else layer
        for layer in decoder_layers(shape, view)
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


IDEFICS2_TOWER = replace(SMOLVLM_TOWER, model_type="idefics2_vision")

IDEFICS2 = MULTIMODAL.relative(
    "idefics2", body=fixed_tower(IDEFICS2_TOWER, projector=idefics2_projector)
)

ARCHITECTURES = (
    Architecture(
        types=("idefics",),
        attention=replace(MHA, build=idefics_layers),
        tensors=UNKNOWN_NAMES,
        verification=Verification(scattered=True),
    ),
    IDEFICS2,
    IDEFICS2.relative("idefics3", body=fixed_tower(IDEFICS3_TOWER, projector=idefics3_projector)),
    IDEFICS2.relative("smolvlm", body=fixed_tower(SMOLVLM_TOWER, projector=idefics3_projector)),
    CLIP_ENCODER.relative("idefics2_vision", "idefics3_vision"),
    MULTIMODAL.relative("modernvbert", "ultravbert"),
)
