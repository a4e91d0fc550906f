"""Encoders of sound: convolutions over a waveform, then layers that see all of it."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.shape import AttentionShape
from ..attention.shared import ENCODER_MHA, LLAMA_ATTENTION
from ..body.body import Layers
from ..body.shared import BARE_ENCODER
from ..config_view import ConfigView
from ..tensors.names import TensorNames, separate


def wav2vec2_frontend(view: ConfigView, layers: Layers) -> int:
    """Strided convolutions over the waveform, a norm and a projection, a grouped convolution for
    positions (with a weight norm over its kernel), and the vector that masks."""
    hidden = view.integer("hidden_size")
    return _waveform_convolutions(view) + _positions(view, hidden) + hidden + _adapter(view)


def data2vec_audio_frontend(view: ConfigView, layers: Layers) -> int:
    """Norms after each convolution, and positions from several grouped convolutions."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_pos_kernel_size")
    groups = view.integer("num_conv_pos_embedding_groups")
    depth = view.integer("num_conv_pos_embeddings")
    return (
        _waveform_convolutions(view, normed=True)
        + depth * hidden * (hidden // groups * kernel + 1)
        + hidden
        + _adapter(view)
    )


def _waveform_convolutions(view: ConfigView, *, normed: bool | None = None) -> int:
    widths, kernels = view.integers("conv_dim") or (), view.integers("conv_kernel") or ()
    hidden, inputs, total = view.integer("hidden_size"), 1, 0
    for index, (width, kernel) in enumerate(zip(widths, kernels, strict=False)):
        norm = normed or view.get("feat_extract_norm") == "layer" or index == 0
        total += width * (inputs * kernel + view.flag("conv_bias")) + 2 * width * norm
        inputs = width
    norm = 2 * inputs * view.flag("feat_proj_layer_norm", absent=True)  # HuBERT's flag
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


WAV2VEC2_NAMES = TensorNames(modules=separate("attention", o="out_proj"))
DIA_NAMES = TensorNames(modules=separate("self_attention"))


LLAMA_LIKE = Architecture(types=("lasr_encoder",), attention=replace(LLAMA_ATTENTION, cached=False))
WAV2VEC2 = Architecture(
    types=("wav2vec2", "hubert", "unispeech", "unispeech-sat"),
    attention=ENCODER_MHA,
    tensors=WAV2VEC2_NAMES,
    body=replace(BARE_ENCODER, more=wav2vec2_frontend),
)

ARCHITECTURES = (
    WAV2VEC2,
    WAV2VEC2.relative("data2vec-audio", body=replace(BARE_ENCODER, more=data2vec_audio_frontend)),
    WAV2VEC2.relative("sew", body=None),
    Architecture(types=("dia_encoder",), attention=AttentionShape(cached=False), tensors=DIA_NAMES),
    LLAMA_LIKE,
    LLAMA_LIKE.relative("pe_audio_encoder", attention={"norm": "head"}),
)
