"""What encoders of images and sound hold beside their layers: callables of body_rows.encoders."""

from ..body.body import Layers
from ..body.image_embeddings import (
    vit_patches as vit_patches,
)
from ..body.image_towers import (
    dino as dino,
)
from ..body.image_towers import (
    dinov2 as dinov2,
)
from ..body.image_towers import (
    dinov2_mlps as dinov2_mlps,
)
from ..config_view import ConfigView
from .extras import patch_count, patches

# --- images ----------------------------------------------------------------------------------


def deit(view: ConfigView, layers: Layers) -> int:
    """A class token and one for distillation."""
    return vit_patches(view, 2)


def ijepa(view: ConfigView, layers: Layers) -> int:
    return vit_patches(view, 0)


def vit_msn(view: ConfigView, layers: Layers) -> int:
    return vit_patches(view, 1)


def beit(view: ConfigView, layers: Layers) -> int:
    """A class token, positions only on demand, a table of relative ones in each layer or for all,
    and two scales in each layer."""
    hidden, side = view.integer("hidden_size"), patch_count(view)
    rows = 1 + bool(view.flag("use_mask_token"))
    rows += side + 1 if view.flag("use_absolute_position_embeddings") else 0
    scales = 0 if view.get("layer_scale_init_value") == 0 else 2 * len(layers)
    return patches(view, bias=True) + (rows + scales) * hidden + _relative_to(view, len(layers))


def _relative_to(view: ConfigView, layers: int) -> int:
    """Relative positions of patches per head, and three of the class token."""
    side = view.integer("image_size") // view.integer("patch_size")
    table = ((2 * side - 1) ** 2 + 3) * view.integer("num_attention_heads")
    own = layers if view.flag("use_relative_position_bias") else 0
    return table * (own + view.flag("use_shared_relative_position_bias"))


def data2vec_norms(view: ConfigView) -> int:
    """The last norm is the pooler's, which this class has not by default."""
    return 0 if view.flag("use_mean_pooling") else 1


def spectrogram(view: ConfigView, layers: Layers) -> int:
    """Patches of a spectrogram that overlap; a class token and one for distillation."""
    size, hidden = view.integer("patch_size"), view.integer("hidden_size")
    rows = (view.integer("num_mel_bins") - size) // view.integer("frequency_stride") + 1
    length = view.optional("max_length") or 1024  # the class's default
    columns = (length - size) // view.integer("time_stride") + 1
    return hidden * (size * size + 1) + (rows * columns + 4) * hidden


def vivit(view: ConfigView, layers: Layers) -> int:
    """Tubes of several frames, and a class token."""
    hidden, tube = view.integer("hidden_size"), view.integers("tubelet_size") or (2, 16, 16)
    frames, height, width = tube
    side = view.integer("image_size")
    count = (view.integer("num_frames") // frames) * (side // height) * (side // width)
    inputs = view.integer("num_channels") * frames * height * width
    return hidden * (inputs + 1) + (count + 2) * hidden


def yolos(view: ConfigView, layers: Layers) -> int:
    """Class and detection tokens; positions, which the middle layers may have again."""
    hidden = view.integer("hidden_size")
    height, width = view.integers("image_size") or (0, 0)
    size = view.integer("patch_size")
    detection = view.integer("num_detection_tokens")
    rows = (height // size) * (width // size) + detection + 1
    middle = len(layers) - 1 if view.flag("use_mid_position_embeddings") else 0
    return patches(view, bias=True) + (1 + detection + rows * (1 + middle)) * hidden


# --- sound -----------------------------------------------------------------------------------


def wav2vec2(view: ConfigView, layers: Layers) -> int:
    """Strided convolutions over the waveform, a norm and a projection, a grouped convolution for
    positions (with a weight norm over its kernel), and the vector that masks."""
    hidden = view.integer("hidden_size")
    return _frontend(view) + _positions(view, hidden) + hidden + _adapter(view)


def data2vec_audio(view: ConfigView, layers: Layers) -> int:
    """Norms after each convolution, and positions from several grouped convolutions."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_pos_kernel_size")
    groups = view.integer("num_conv_pos_embedding_groups")
    depth = view.integer("num_conv_pos_embeddings")
    return (
        _frontend(view, normed=True)
        + depth * hidden * (hidden // groups * kernel + 1)
        + hidden
        + _adapter(view)
    )


def _frontend(view: ConfigView, *, normed: bool | None = None) -> int:
    widths, kernels = view.integers("conv_dim") or (), view.integers("conv_kernel") or ()
    hidden, inputs, total = view.integer("hidden_size"), 1, 0
    for index, (width, kernel) in enumerate(zip(widths, kernels, strict=False)):
        norm = normed or view.get("feat_extract_norm") == "layer" or index == 0
        total += width * (inputs * kernel + view.flag("conv_bias")) + 2 * width * norm
        inputs = width
    norm = 0 if view.get("feat_proj_layer_norm") is False else 2 * inputs  # HuBERT's flag
    return total + norm + (inputs + 1) * hidden


def _adapter(view: ConfigView) -> int:
    """Strided convolutions behind the encoder, on demand."""
    if not view.flag("add_adapter"):
        return 0
    hidden, out = view.integer("hidden_size"), view.optional("output_hidden_size")
    out = out or hidden
    each = 2 * out * (out * view.integer("adapter_kernel_size") + 1)
    narrowed = (hidden + 1) * out + 2 * out if out != hidden else 0
    return view.integer("num_adapter_layers") * each + narrowed


def _positions(view: ConfigView, hidden: int) -> int:
    kernel = view.integer("num_conv_pos_embeddings")
    groups = view.integer("num_conv_pos_embedding_groups")
    norm = 2 * hidden if view.flag("conv_pos_batch_norm") else kernel  # HuBERT's flag
    return hidden * (hidden // groups * kernel + 1) + norm
