"""Qwen's models of sound, and those with its audio encoder."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import windowed
from ..attention.shared import ENCODER_MHA
from ..body.body import Layers
from ..body.projectors import linear, no_projector
from ..body.qwen_towers import QWEN2_5_VL_TOWER, qwen2_5_vl_projector
from ..body.shared import DECODER
from ..body.sound_towers import QWEN2_AUDIO_TOWER, VOXTRAL_TOWER, spectrogram_convolutions
from ..body.towers import Part, Wrapper, one_tower
from ..config_view import ConfigView
from ..decoders.qwen import QWEN2, QWEN3_MOE
from ..tensors.names import BART_NAMES
from ..tying import never


def audio_flamingo_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices, with biases unless `projector_bias` says no."""
    out, bias = text.integer("hidden_size"), view.flag("projector_bias", absent=True)
    return linear(tower.integer("hidden_size"), out, bias=bias) + linear(out, out, bias=bias)


def qwen2_audio_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return linear(tower.integer("hidden_size"), text.integer("hidden_size"))


def omni_audio_embeddings(view: ConfigView, layers: Layers) -> int:
    """Qwen2.5-Omni: convolutions without positions, a matrix to the language model's width, and
    two vectors there that begin and end a sound."""
    out = view.integer("output_dim")
    matrix = linear(view.integer("hidden_size"), out)
    return spectrogram_convolutions(view, layers) + matrix + 2 * out


QWEN2_5_OMNI_TOWER = replace(QWEN2_5_VL_TOWER, model_type="qwen2_5_omni_vision_encoder")
QWEN2_5_OMNI_AUDIO_TOWER = replace(
    QWEN2_AUDIO_TOWER,
    body=replace(QWEN2_AUDIO_TOWER.body, more=omni_audio_embeddings),
    model_type="qwen2_5_omni_audio_encoder",
)
AUDIO_FLAMINGO_TOWER = replace(VOXTRAL_TOWER, model_type="audioflamingo3_encoder")

QWEN2_AUDIO = MULTIMODAL.relative(
    "qwen2_audio",
    config={"tied": never},
    body=one_tower(QWEN2_AUDIO_TOWER, projector=qwen2_audio_projector, key="audio_config"),
)

ARCHITECTURES = (
    QWEN2.relative("qwen2_5_omni_text", body=DECODER),
    Architecture(types=("qwen2_5_omni_talker",), attention=QWEN2.attention),
    QWEN3_MOE.relative("qwen3_omni_moe_text", attention={"kinds": windowed}, body={"named": False}),
    Architecture(
        types=("qwen2_5_omni_audio_encoder", "qwen2_audio_encoder", "audioflamingo3_encoder"),
        attention=replace(ENCODER_MHA, k_bias=False),
        tensors=BART_NAMES,
    ),
    Architecture(
        types=("qwen2_5_omni", "qwen3_omni_moe"),
        config=ConfigKeys(text="thinker_config"),
        uncounted="its talker and its audio codec are not counted",
    ),
    MULTIMODAL.relative("qwen3_omni_moe_thinker", "qwen3_asr"),
    MULTIMODAL.relative(
        "qwen2_5_omni_thinker",
        body=Wrapper(
            parts=(
                Part(towers=(QWEN2_5_OMNI_TOWER,), projector=qwen2_5_vl_projector, fixed=True),
                Part(
                    towers=(QWEN2_5_OMNI_AUDIO_TOWER,),
                    projector=no_projector,
                    key="audio_config",
                    fixed=True,
                ),
            )
        ),
    ),
    QWEN2_AUDIO,
    QWEN2_AUDIO.relative(
        *("audioflamingo3", "musicflamingo"),
        body=one_tower(
            AUDIO_FLAMINGO_TOWER, projector=audio_flamingo_projector, key="audio_config"
        ),
    ),
)
