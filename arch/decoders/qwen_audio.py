"""Qwen's models of sound, and those with its audio encoder."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import windowed
from ..attention.shape import AttentionShape
from ..body.body import Layers
from ..body.image_embeddings import convolution
from ..body.projectors import linear, nothing
from ..body.qwen_towers import QWEN2_5_VL_TOWER, qwen2_5_vl_projector
from ..body.shapes import DECODER
from ..body.sound_towers import QWEN2_AUDIO_TOWER, VOXTRAL_TOWER
from ..body.towers import Part, Wrapper
from ..config_view import ConfigView
from ..tensors.names import BART
from ..tying import never
from .qwen import QWEN2, QWEN3_MOE


def audio_flamingo_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices, with biases unless `projector_bias` says no."""
    out, bias = text.integer("hidden_size"), view.get("projector_bias") is not False
    return linear(tower.integer("hidden_size"), out, bias=bias) + linear(out, out, bias=bias)


def qwen2_audio_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
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


QWEN2_5_OMNI_TEXT = QWEN2.relative("qwen2_5_omni_text", body=DECODER, conversion=Conversion())
QWEN2_5_OMNI_TALKER = QWEN2_5_OMNI_TEXT.relative("qwen2_5_omni_talker", body=None, rotary=None)
QWEN3_OMNI_MOE_TEXT = QWEN3_MOE.relative(
    "qwen3_omni_moe_text", attention={"kinds": windowed}, body={"named": False}
)
ENCODER = Architecture(
    types=("qwen2_5_omni_audio_encoder", "qwen2_audio_encoder", "audioflamingo3_encoder"),
    attention=AttentionShape(
        qkv_bias=True,
        k_bias=False,
        o_bias=True,
        fixed_head_dim=True,
        kv_heads_from="query heads",
        cached=False,
    ),
    tensors=BART,
)
OMNI = Architecture(
    types=("qwen2_5_omni", "qwen3_omni_moe"),
    config=ConfigKeys(text="thinker_config"),
    uncounted="its talker and its audio codec are not counted",
)
UNCOUNTED = Architecture(
    types=("qwen3_omni_moe_thinker", "qwen3_asr"), config=ConfigKeys(text="text_config")
)
QWEN2_5_OMNI_THINKER = UNCOUNTED.relative(
    "qwen2_5_omni_thinker",
    body=Wrapper(
        parts=(
            Part(towers=(QWEN2_5_OMNI_TOWER,), projector=qwen2_5_vl_projector),
            Part(towers=(QWEN2_5_OMNI_AUDIO_TOWER,), projector=nothing, key="audio_config"),
        )
    ),
)
QWEN2_AUDIO = UNCOUNTED.relative(
    "qwen2_audio",
    config={"tied": never},
    body=Wrapper(
        parts=(
            Part(towers=(QWEN2_AUDIO_TOWER,), projector=qwen2_audio_projector, key="audio_config"),
        )
    ),
)
AUDIO_FLAMINGO = QWEN2_AUDIO.relative(
    *("audioflamingo3", "musicflamingo"),
    body=Wrapper(
        parts=(
            Part(
                towers=(AUDIO_FLAMINGO_TOWER,),
                projector=audio_flamingo_projector,
                key="audio_config",
            ),
        )
    ),
)

ARCHITECTURES = (
    *(QWEN2_5_OMNI_TEXT, QWEN2_5_OMNI_TALKER, QWEN3_OMNI_MOE_TEXT, ENCODER, OMNI, UNCOUNTED),
    *(QWEN2_5_OMNI_THINKER, QWEN2_AUDIO, AUDIO_FLAMINGO),
)
