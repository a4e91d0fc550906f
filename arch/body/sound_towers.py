"""Encoders of sound as Whisper has them, which several multimodal models build."""

from dataclasses import replace

from ..config_view import ConfigView
from .body import Layers
from .feed_forward import Mlp
from .image_embeddings import convolution
from .shapes import IMAGE, PLAIN
from .towers import BIASED_HEADS, Tower


def whisper_encoder(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over the spectrogram, and positions."""
    hidden, bins = view.integer("hidden_size"), view.integer("num_mel_bins")
    frames = convolution(view, inputs=bins, positions=3)
    frames += convolution(view, inputs=hidden, positions=3)
    return frames + view.integer("max_source_positions") * hidden


QWEN2_AUDIO_TOWER = Tower(
    body=replace(
        IMAGE,
        mlp=Mlp(width="encoder_ffn_dim", gated=False, bias=True),
        extra=whisper_encoder,
    ),
    attention=replace(BIASED_HEADS, k_bias=False),
    model_type="qwen2_audio_encoder",
    names={"num_hidden_layers": "encoder_layers", "num_attention_heads": "encoder_attention_heads"},
)
VOXTRAL_TOWER = replace(
    QWEN2_AUDIO_TOWER,
    body=replace(QWEN2_AUDIO_TOWER.body, mlp=PLAIN),
    model_type="voxtral_encoder",
    names={},
)
