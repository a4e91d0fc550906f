"""What towers hold beside their layers: the callables of the rows in tower_rows."""

from ..body.body import Layers
from ..body.feed_forward import matrices
from ..body.image_towers import (
    intern as intern,
)
from ..body.image_towers import (
    intern_norms as intern_norms,
)
from ..body.image_towers import (
    siglip2 as siglip2,
)
from ..body.image_towers import (
    without_head as without_head,
)
from ..config_view import ConfigView
from ..decoders.glm_vision import (
    _downsampled as _downsampled,
)
from ..decoders.glm_vision import (
    _frames as _frames,
)
from ..decoders.glm_vision import (
    glm4v as glm4v,
)
from ..decoders.glm_vision import (
    glm_ocr as glm_ocr,
)
from .extras import convolution
from .projectors import linear


def whisper_encoder(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over the spectrogram, and positions."""
    hidden, bins = view.integer("hidden_size"), view.integer("num_mel_bins")
    frames = convolution(view, inputs=bins, positions=3)
    frames += convolution(view, inputs=hidden, positions=3)
    return frames + view.integer("max_source_positions") * hidden


def gemma4_audio(view: ConfigView) -> int:
    """A conformer: two convolutions over the spectrogram of 128 bins, and in each layer two MLPs
    of four times the width, attention with relative keys and a gated depthwise convolution."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_kernel_size")
    first, second = view.integers("subsampling_conv_channels") or (128, 32)
    frames = 9 * (first + first * second) + first + second + first // 4 * second * hidden
    mlps = 2 * (matrices(hidden, 4 * hidden, gated=False) + 2 * hidden)
    attention = 5 * hidden * hidden + hidden // view.integer("num_attention_heads")
    convolutions = 3 * hidden * hidden + hidden * kernel + 2 * hidden
    each = mlps + attention + convolutions + 3 * hidden
    out = linear(hidden, view.integer("output_proj_dims"))
    return frames + view.integer("num_hidden_layers") * each + out


def omni_encoder(view: ConfigView, layers: Layers) -> int:
    """Qwen2.5-Omni: convolutions without positions, a matrix to the language model's width, and
    two vectors there that begin and end a sound."""
    hidden, out = view.integer("hidden_size"), view.integer("output_dim")
    frames = convolution(view, inputs=view.integer("num_mel_bins"), positions=3)
    frames += convolution(view, inputs=hidden, positions=3)
    return frames + linear(hidden, out) + 2 * out


def siglip_text(view: ConfigView, layers: Layers) -> int:
    """A head over the last token."""
    hidden = view.integer("hidden_size")
    return linear(hidden, view.optional("projection_size") or hidden)
