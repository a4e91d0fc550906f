"""What towers hold beside their layers, and what joins them to the language model."""

from ..attention.layers import encoder
from ..attention.shape import AttentionShape
from ..body.body import Layers
from ..body.image_towers import (
    pixtral as pixtral,
)
from ..body.image_towers import (
    pooling_head as pooling_head,
)
from ..body.image_towers import (
    siglip as siglip,
)
from ..body.projectors import (
    linear as linear,
)
from ..config_view import MAX_LAYERS, ConfigView
from ..decoders.kimi import (
    kimi_k25 as kimi_k25,
)
from ..decoders.kimi import (
    moonvit as moonvit,
)
from .extras import area, patch_count, patches

# --- SigLIP (Gemma 3) --------------------------------------------------------------------------


def gemma3(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm and a matrix."""
    hidden = tower.integer("hidden_size")
    return hidden + linear(hidden, text.integer("hidden_size"), bias=False)


# --- Pixtral (Mistral 3) -----------------------------------------------------------------------


def mistral3(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm, a merger of neighbouring patches, and two matrices."""
    hidden, out = tower.integer("hidden_size"), text.integer("hidden_size")
    merged = hidden * view.integer("spatial_merge_size") ** 2
    layers = view.get("vision_feature_layer")
    features = len(layers) if isinstance(layers, list) else 1
    bias = view.flag("multimodal_projector_bias")
    merger = hidden + linear(merged, hidden, bias=False)
    return merger + linear(features * hidden, out, bias=bias) + linear(out, out, bias=bias)


# --- Qwen-VL -----------------------------------------------------------------------------------


def _merged(tower: ConfigView) -> int:
    return tower.integer("hidden_size") * tower.integer("spatial_merge_size") ** 2


def _merger(tower: ConfigView, out: int, norm: int) -> int:
    merged = _merged(tower)
    return norm + linear(merged, merged) + linear(merged, out)


def _frames(view: ConfigView, *, bias: bool) -> int:
    """Patches of several frames."""
    hidden, frames = view.integer("hidden_size"), view.integer("temporal_patch_size")
    weight = patches(view, bias=False, channels="in_channels") * frames
    return weight + (hidden if bias else 0)


def qwen2_vl_patches(view: ConfigView, layers: Layers) -> int:
    return _frames(view, bias=False)


def qwen3_vl_patches(view: ConfigView, layers: Layers) -> int:
    """With a bias, and learned positions."""
    positions = view.integer("num_position_embeddings") * view.integer("hidden_size")
    return _frames(view, bias=True) + positions


def qwen2_vl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return _merger(tower, tower.integer("output_size"), 2 * tower.integer("hidden_size"))


def qwen2_5_vl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return _merger(tower, tower.integer("out_hidden_size"), tower.integer("hidden_size"))


def qwen3_vl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One merger at the end, and one for each layer whose output joins the language model's."""
    out, early = tower.integer("out_hidden_size"), tower.integers("deepstack_visual_indexes") or ()
    last = _merger(tower, out, 2 * tower.integer("hidden_size"))
    return last + len(early) * _merger(tower, out, 2 * _merged(tower))


# --- Llama 4 and Llama 3.2 Vision --------------------------------------------------------------


def llama4_vision(view: ConfigView, layers: Layers) -> int:
    """Unfolded patches, a class token, positions, and the adapter after the pixel shuffle."""
    hidden, out = view.integer("hidden_size"), view.integer("projector_output_dim")
    embeddings = patches(view, bias=False) + (patch_count(view) + 2) * hidden
    adapter = linear(
        view.integer("intermediate_size"), view.integer("projector_input_dim"), bias=False
    )
    return embeddings + adapter + linear(out, out, bias=False)


def llama4(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("vision_output_dim"), text.integer("hidden_size"), bias=False)


def mllama_vision(view: ConfigView, layers: Layers) -> int:
    """Patches and a class token; gated positions, for the image, its tiles and their layout; and
    two gates in each global layer."""
    hidden, tokens = view.integer("hidden_size"), patch_count(view) + 1
    ratios = view.get("supported_aspect_ratios")
    layouts = 1 + (len(ratios) if isinstance(ratios, list) else 8)
    tiles = layouts * view.integer("max_num_tiles") * hidden
    embeddings = patches(view, bias=False) + hidden + tokens * hidden
    gates = 3 + 2 * view.integer("num_global_layers", minimum=0)
    return embeddings + tokens * tiles + 2 * tiles + gates


def mllama_layers(shape: AttentionShape, view: ConfigView) -> Layers:
    """The local layers, then as many global ones of the same shape as the config says."""
    local = encoder(shape, view)
    return local + local[:1] * view.integer("num_global_layers", minimum=0, maximum=MAX_LAYERS)


def mllama(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("vision_output_dim"), text.integer("hidden_size"))


# --- MoonViT (Kimi K2.5) and Gemma 4 -----------------------------------------------------------


def gemma4_vision(view: ConfigView, layers: Layers) -> int:
    """A matrix over the pixels of a patch, and a table of positions for each axis."""
    positions = 2 * view.integer("position_embedding_size")
    pixels = 3 * area(view, "patch_size")
    return (pixels + positions) * view.integer("hidden_size")


def gemma4(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("hidden_size"), text.integer("hidden_size"), bias=False)
