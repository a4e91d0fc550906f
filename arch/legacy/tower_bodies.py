"""What towers hold beside their layers: the callables of the rows in tower_rows."""

from ..body.body import Layers
from ..body.feed_forward import matrices
from ..config_view import ConfigView
from .extras import convolution, patch_count, patches
from .projectors import linear, pooling_head


def without_head(view: ConfigView, layers: Layers) -> int:
    """SigLIP's patches and positions."""
    return patches(view, bias=True) + patch_count(view) * view.integer("hidden_size")


def siglip2(view: ConfigView, layers: Layers) -> int:
    """A matrix over the pixels of a patch, and positions for `num_patches` of them."""
    hidden, size = view.integer("hidden_size"), view.integer("patch_size")
    pixels = view.integer("num_channels") * size * size
    positions = view.integer("num_patches") * hidden
    return linear(pixels, hidden) + positions + pooling_head(view)


def intern(view: ConfigView, layers: Layers) -> int:
    """Patches, a class token and positions, and two scales in each layer; q/k norms on demand."""
    hidden = view.integer("hidden_size")
    rows = 1 + 2 * len(layers)
    rows += patch_count(view) + 1 if view.flag("use_absolute_position_embeddings") else 0
    rows += view.flag("use_mask_token") + (2 * len(layers) if view.flag("use_qk_norm") else 0)
    return patches(view, bias=True) + rows * hidden


def intern_norms(view: ConfigView) -> int:
    """None after the last layer with mean pooling."""
    return 0 if view.flag("use_mean_pooling") else 1


def _frames(view: ConfigView) -> int:
    """A convolution over patches of several frames."""
    frames = view.integer("temporal_patch_size")
    return patches(view, bias=False, channels="in_channels") * frames + view.integer("hidden_size")


def _downsampled(view: ConfigView, width: int, norm: int) -> int:
    """Neighbouring patches to one, then a projection, a norm and a gated MLP of `width`."""
    hidden, out = view.integer("hidden_size"), view.integer("out_hidden_size")
    joined = out * (hidden * view.integer("spatial_merge_size") ** 2 + 1)
    return joined + out * out + norm * out + matrices(out, width, gated=True)


def glm4v(view: ConfigView, layers: Layers) -> int:
    """Patches, positions, and the merger that ends in `out_hidden_size`."""
    positions = patch_count(view) * view.integer("hidden_size")
    return _frames(view) + positions + _downsampled(view, view.integer("intermediate_size"), 2)


def glm_ocr(view: ConfigView, layers: Layers) -> int:
    """The same without positions; the merger is wider."""
    width = view.integer("out_hidden_size") * view.integer("in_channels")
    return _frames(view) + _downsampled(view, width, 2)


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
