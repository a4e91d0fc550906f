"""TODO."""

from dataclasses import replace

from ..body.body import Layers
from ..body.image_embeddings import convolution
from ..body.projectors import linear
from ..body.qwen_towers import QWEN2_5_VL_TOWER
from ..body.sound_towers import QWEN2_AUDIO_TOWER, VOXTRAL_TOWER
from ..config_view import ConfigView


def audio_flamingo(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices, with biases unless `projector_bias` says no."""
    out, bias = text.integer("hidden_size"), view.get("projector_bias") is not False
    return linear(tower.integer("hidden_size"), out, bias=bias) + linear(out, out, bias=bias)


def qwen2_audio(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("hidden_size"), text.integer("hidden_size"))


def omni_encoder(view: ConfigView, layers: Layers) -> int:
    """Qwen2.5-Omni: convolutions without positions, a matrix to the language model's width, and
    two vectors there that begin and end a sound."""
    hidden, out = view.integer("hidden_size"), view.integer("output_dim")
    frames = convolution(view, inputs=view.integer("num_mel_bins"), positions=3)
    frames += convolution(view, inputs=hidden, positions=3)
    return frames + linear(hidden, out) + 2 * out


QWEN2_5_OMNI_TOWER = replace(QWEN2_5_VL_TOWER, model_type="qwen2_5_omni_vision_encoder")
QWEN2_5_OMNI_AUDIO_TOWER = replace(
    QWEN2_AUDIO_TOWER,
    body=replace(QWEN2_AUDIO_TOWER.body, extra=omni_encoder),
    model_type="qwen2_5_omni_audio_encoder",
)
AUDIO_FLAMINGO_TOWER = replace(VOXTRAL_TOWER, model_type="audioflamingo3_encoder")
