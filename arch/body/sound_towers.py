"""Encoders of sound as Whisper has them, which several multimodal models build."""

from dataclasses import replace

from ..attention.shared import TOWER_MHA_BIASED
from ..config_view import ConfigView
from .body import Layers
from .feed_forward import Mlp
from .image_embeddings import convolution
from .shared import IMAGE, PLAIN
from .towers import Tower


def spectrogram_convolutions(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over three frames of the spectrogram."""
    bins, hidden = view.integer("num_mel_bins"), view.integer("hidden_size")
    first = convolution(view, inputs=bins, positions=3)
    return first + convolution(view, inputs=hidden, positions=3)


def spectrogram_embeddings(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over the spectrogram, and positions."""
    positions = view.integer("max_source_positions") * view.integer("hidden_size")
    return spectrogram_convolutions(view, layers) + positions


QWEN2_AUDIO_TOWER = Tower(
    body=replace(
        IMAGE, mlp=Mlp(width="encoder_ffn_dim", gated=False, bias=True), more=spectrogram_embeddings
    ),
    attention=replace(TOWER_MHA_BIASED, k_bias=False),
    model_type="qwen2_audio_encoder",
    names={"num_hidden_layers": "encoder_layers", "num_attention_heads": "encoder_attention_heads"},
)
VOXTRAL_TOWER = replace(
    QWEN2_AUDIO_TOWER,
    body=replace(QWEN2_AUDIO_TOWER.body, mlp=PLAIN),
    model_type="voxtral_encoder",
    names={},
)
