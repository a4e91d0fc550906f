"""Gemma 4: Gemma 3n's shared caches, heads of another width in layers that see everything."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, full_every
from ..attention.layers import encoder_layers, halved_if_two_sided, layer_count
from ..attention.per_layer import listed_values
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers
from ..body.feed_forward import Experts, Mlp, if_flag, matrices
from ..body.image_embeddings import area
from ..body.projectors import linear
from ..body.shared import SANDWICH
from ..body.towers import Part, Tower, Wrapper
from ..config_view import ConfigView
from ..modules.names import BESIDE_MLP
from ..nested import nested
from .gemma import (
    layers_sharing_caches,
    layers_with_readers,
    per_layer_inputs,
    shared_layers,
)


def gemma4_values(view: ConfigView, kinds: tuple[str, ...]) -> list[Mapping[str, Any]]:
    """Full layers have `global_head_dim`, and with `attention_k_eq_v` their own number of K/V
    heads. A file that transformers 5.24 wrote says so in `per_layer_config` instead."""
    given = listed_values(view, len(kinds))
    if given is not None:
        return given
    full: dict[str, Any] = {}
    d = view.optional("global_head_dim")
    if d is not None:
        full["head_dim"] = d
    kv = view.optional("num_global_key_value_heads")
    if kv is not None and view.flag("attention_k_eq_v"):
        full["num_key_value_heads"] = kv
    return [full if kind == FULL else {} for kind in kinds]


def gemma4_norms(view: ConfigView, layer: Layer) -> int:
    """Four, one after the per-layer input, and with experts three more and the router's scale."""
    per_layer_input = view.optional("hidden_size_per_layer_input", minimum=0)
    return 4 + bool(per_layer_input) + (4 if view.flag("enable_moe_block") else 0)


def gemma4_width(view: ConfigView, layer: Layer) -> int:
    """With `use_double_wide_mlp`, layers that read another layer's cache are twice as wide."""
    wide = view.flag("use_double_wide_mlp") and layer.shares_cache_with is not None
    return view.integer("intermediate_size") * (2 if wide else 1)


def drafting_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Gemma 4's drafting models: every layer reads the cache of the model that they draft for."""
    text, inner = nested(view, "text_config")
    count = layer_count(text)
    return layers_with_readers(inner.attention, text, shared_layers(text, most=count) or count)


def gemma4_vision_embeddings(view: ConfigView, layers: Layers) -> int:
    """A matrix over the pixels of a patch, and a table of positions for each axis."""
    positions = 2 * view.integer("position_embedding_size")
    pixels = 3 * area(view, "patch_size")
    return (pixels + positions) * view.integer("hidden_size")


def gemma4_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("hidden_size"), text.integer("hidden_size"), bias=False)


def outputs_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return tower.integer("output_proj_dims") * text.integer("hidden_size")


def conformer(view: ConfigView) -> int:
    """A conformer: two convolutions over the spectrogram of 128 bins, and in each layer two MLPs
    of four times the width, attention with relative keys and a gated depthwise convolution."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_kernel_size")
    first, second = view.integers("subsampling_conv_channels", count=2) or (128, 32)
    frames = 9 * (first + first * second) + first + second + first // 4 * second * hidden
    mlps = 2 * (matrices(hidden, 4 * hidden, gated=False) + 2 * hidden)
    attention = 5 * hidden * hidden + hidden // view.integer("num_attention_heads")
    convolutions = 3 * hidden * hidden + hidden * kernel + 2 * hidden
    each = mlps + attention + convolutions + 3 * hidden
    out = linear(hidden, view.integer("output_proj_dims"))
    return frames + view.integer("num_hidden_layers") * each + out


def unified_patches(view: ConfigView) -> int:
    """No tower: one matrix over the pixels of joined patches, a norm before it and two after it,
    and a table of positions for each axis."""
    width = view.integer("mm_embed_dim")
    pixels = 3 * (view.integer("patch_size") * view.integer("pooling_kernel_size")) ** 2
    return 2 * pixels + linear(pixels, width) + (4 + 2 * view.integer("mm_posemb_size")) * width


def unified_audio_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix over the samples of a frame."""
    return tower.integer("audio_embed_dim") * text.integer("hidden_size")


def no_tower(view: ConfigView) -> int:
    """Sound goes to its projector as it is."""
    return 0


UNIFIED_PATCHES = Tower(model_type="gemma4_unified_vision", whole=unified_patches)
UNIFIED_AUDIO = Tower(model_type="gemma4_unified_audio", whole=no_tower)
GEMMA4_TOWER = Tower(
    body=Body(norms=4, final_norms=0, vocabulary=None, more=gemma4_vision_embeddings),
    attention=AttentionShape(build=encoder_layers, norm="head"),
    model_type="gemma4_vision",
)
GEMMA4_AUDIO_TOWER = Tower(model_type="gemma4_audio", whole=conformer)

GEMMA4_TEXT = Architecture(
    types=("gemma4_text",),
    config=ConfigKeys(defaults={"global_head_dim": 512}),  # set in __post_init__, none declared
    attention=replace(
        LLAMA_ATTENTION,
        build=layers_sharing_caches,
        kinds=full_every(6),
        norm="head",
        window=halved_if_two_sided,
        per_layer=gemma4_values,
        key_value_keys=("num_key_value_heads", "num_global_key_value_heads"),
        per_layer_key="per_layer_config",
    ),
    body=Body(
        norms=gemma4_norms,
        mlp=Mlp(width=gemma4_width),
        experts=Experts(
            per_token="top_k_experts",
            layers=if_flag("enable_moe_block"),
            correction=True,
            beside_mlp=True,
        ),
        more=per_layer_inputs,
        named=True,
    ),
    feed_forward=BESIDE_MLP,
    conversion=Conversion(changes_values=True),
)
ASSISTANT = Architecture(
    types=("gemma4_assistant",),
    attention=AttentionShape(build=drafting_layers),
    conversion=Conversion(uncompared="it reads the cache of the model that it drafts for"),
)

ARCHITECTURES = (
    GEMMA4_TEXT,
    GEMMA4_TEXT.relative(
        "gemma4_unified_text",
        body=replace(SANDWICH, mlp=Mlp(width=gemma4_width)),
        conversion=Conversion(changes_values=True),
    ),
    GEMMA4_TEXT.relative(
        "diffusion_gemma_text",
        config={"defaults": {"attention_k_eq_v": True, "global_head_dim": 512}},
        body=Body(
            norms=8, experts=Experts(per_token="top_k_experts", correction=True, beside_mlp=True)
        ),
        conversion=Conversion(changes_values=True),
    ),
    ASSISTANT,
    ASSISTANT.relative("gemma4_unified_assistant"),
    MULTIMODAL.relative("diffusion_gemma"),
    MULTIMODAL.relative(
        "gemma4_unified",
        body=Wrapper(
            parts=(
                Part(towers=(UNIFIED_PATCHES,), projector=outputs_projector, fixed=True),
                Part(
                    towers=(UNIFIED_AUDIO,),
                    projector=unified_audio_projector,
                    key="audio_config",
                    fixed=True,
                ),
            )
        ),
    ),
    MULTIMODAL.relative(
        "gemma4",
        body=Wrapper(
            parts=(
                Part(towers=(GEMMA4_TOWER,), projector=gemma4_projector, fixed=True),
                Part(
                    towers=(GEMMA4_AUDIO_TOWER,),
                    projector=outputs_projector,
                    key="audio_config",
                    fixed=True,
                ),
            )
        ),
    ),
)
