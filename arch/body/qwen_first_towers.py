"""The towers of Qwen's first models of images and sound, which ship with their weights."""

from ..config_view import ConfigView
from .feed_forward import matrices
from .projectors import linear

# Queries of Qwen-VL's resampler, and rows of its tower's positions, which are interpolated to the
# size of an image (Qwen/Qwen-VL, visual.py).
RESAMPLED = POSITIONS = 256


def _layers(count: int, hidden: int, width: int, *, k_bias: bool) -> int:
    """Layers of attention and a plain MLP, with two norms each."""
    attention = 4 * linear(hidden, hidden) - (0 if k_bias else hidden)
    mlp = matrices(hidden, width, gated=False, bias=True)
    return count * (attention + mlp + 4 * hidden)


def qwen_visual(tower: ConfigView, hidden: int) -> int:
    """A ViT whose patches 256 queries resample to the hidden size, with fixed positions that are
    stored (Qwen/Qwen-VL, visual.py)."""
    width, out = tower.integer("width"), tower.optional("output_dim") or hidden
    patch = tower.integer("patch_size")
    factor = tower.positive("mlp_ratio", maximum=100) or 4
    inputs = 3 * patch * patch * width + POSITIONS * width + 2 * width
    layers = _layers(tower.integer("layers"), width, int(width * factor), k_bias=True)
    queries = 2 * RESAMPLED * out + linear(width, out, bias=False) + 4 * linear(out, out)
    return inputs + layers + queries + 6 * out + out * out


def qwen_audio(tower: ConfigView, hidden: int) -> int:
    """Whisper's encoder, whose positions are computed, one matrix, and two vectors that begin and
    end what was heard (Qwen/Qwen-Audio, audio.py)."""
    width, out = tower.integer("n_state"), tower.optional("output_dim") or hidden
    ends = 2 * out if tower.flag("add_audio_bos_eos_token") else 0
    inputs = 3 * width * (tower.integer("n_mels") + width) + 2 * width
    layers = _layers(tower.integer("n_layer"), width, 4 * width, k_bias=False)
    return inputs + layers + 2 * width + linear(width, out) + ends
