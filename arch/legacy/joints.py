"""What joins a tower to the language model, beside those in projectors: (wrapper, tower, text)."""

from ..body.feed_forward import matrices
from ..body.projectors import (
    downsampling as downsampling,
)
from ..body.projectors import (
    nothing as nothing,
)
from ..config_view import ConfigView
from ..decoders.cohere import (
    _gated as _gated,
)
from ..decoders.cohere import (
    aya_vision as aya_vision,
)
from ..decoders.cohere import (
    cohere2_vision as cohere2_vision,
)
from ..decoders.deepseek_vision import (
    two_layers as two_layers,
)
from ..decoders.ernie import (
    paddleocr_vl as paddleocr_vl,
)
from ..decoders.phi import (
    fuyu as fuyu,
)
from .projectors import linear, qwen2_5_vl

# Sizes of Idefics2's resampler, and the defaults of its class.
_RESAMPLER = {
    "resampler_n_heads": 16,
    "resampler_head_dim": 96,
    "num_key_value_heads": 4,
    "resampler_n_latents": 64,
    "resampler_depth": 3,
}


def _features(view: ConfigView, name: str = "vision_feature_layer") -> int:
    """How many layers of the tower are read side by side."""
    layers = view.get(name)
    return len(layers) if isinstance(layers, list) else 1


def _biased(view: ConfigView) -> bool:
    return view.get("multimodal_projector_bias") is not False


def llava(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices."""
    inputs, out = tower.integer("hidden_size") * _features(view), text.integer("hidden_size")
    bias = _biased(view)
    return linear(inputs, out, bias=bias) + linear(out, out, bias=bias)


def image_newline(view: ConfigView, text: ConfigView) -> int:
    """A vector that ends each row of patches."""
    return text.integer("hidden_size")


def vipllava(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over several layers of the tower, and two matrices."""
    layers = view.integers("vision_feature_layers") or ()
    inputs, out = tower.integer("hidden_size") * len(layers), text.integer("hidden_size")
    return 2 * inputs + linear(inputs, out) + linear(out, out)


def audio_flamingo(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices, with biases unless `projector_bias` says no."""
    out, bias = text.integer("hidden_size"), view.get("projector_bias") is not False
    return linear(tower.integer("hidden_size"), out, bias=bias) + linear(out, out, bias=bias)


def paligemma(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix to `projection_dim`, a key of the wrapper or its tower."""
    out = tower.optional("projection_dim") or view.integer("projection_dim")
    return linear(tower.integer("hidden_size"), out)


def idefics3(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One matrix over joined patches."""
    joined = tower.integer("hidden_size") * view.integer("scale_factor") ** 2
    return linear(joined, text.integer("hidden_size"), bias=False)


def idefics2(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
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


def internvl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches, and two matrices."""
    ratio, out = view.get("downsample_ratio"), text.integer("hidden_size")
    side = int(1 / ratio) if isinstance(ratio, float) and 0 < ratio <= 1 else 2
    inputs = tower.integer("hidden_size") * side**2
    return 2 * inputs + linear(inputs, out) + linear(out, out)


def lfm2_vl(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm on demand, and two matrices over joined patches."""
    inputs = tower.integer("hidden_size") * downsampling(view) ** 2
    width, bias = view.integer("projector_hidden_size"), view.flag("projector_bias")
    norm = 2 * inputs if view.flag("projector_use_layernorm") else 0
    return (
        norm
        + linear(inputs, width, bias=bias)
        + linear(width, text.integer("hidden_size"), bias=bias)
    )


def aria(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Queries that attend to the patches, and an MLP."""
    hidden, out = tower.integer("hidden_size"), text.integer("hidden_size")
    counts = view.get("projector_patch_to_query_dict")
    queries = max(counts.values()) if isinstance(counts, dict) and counts else 256
    inner = linear(hidden, 3 * hidden) + 2 * linear(hidden, hidden)
    outer = 3 * hidden * hidden  # q, k and v in front of the attention's own
    norms = 6 * hidden
    mlp = linear(hidden, out, bias=False) + linear(out, out, bias=False)
    return queries * hidden + inner + outer + norms + mlp


def hyperclovax(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Qwen2.5-VL's merger, and one matrix."""
    out = tower.integer("out_hidden_size")
    return qwen2_5_vl(view, tower, text) + linear(out, text.integer("hidden_size"))


def qwen3_5(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One merger, whose norm has a bias."""
    return qwen2_5_vl(view, tower, text) + tower.integer("hidden_size")


def gemma4_audio(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return tower.integer("output_proj_dims") * text.integer("hidden_size")


def qwen2_audio(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("hidden_size"), text.integer("hidden_size"))


def voxtral(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices over joined frames."""
    out = text.integer("hidden_size")
    return (tower.integer("intermediate_size") + out) * out
