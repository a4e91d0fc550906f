"""Models that hear or speak around a language model."""

from ..architecture import Architecture, ConfigKeys, Stored
from ..attention.layer_kinds import windowed
from ..attention.mha import ENCODER_HEADS
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.shapes import NO_MLP
from ..config_view import ConfigView
from ..encoders.wav2vec2 import WAV2VEC2_NAMES
from ..gguf.form import Gguf
from ..tensors.names import BART as BART_NAMES
from ..tensors.names import TensorNames, separate
from ..tying import never

MOSHI_NAMES = TensorNames(
    modules=separate("self_attn") | {f"self_attn.{p}_proj.linear": p for p in "qkvo"}
)


def half_gated(view: ConfigView, layers: Layers) -> int:
    """Moshi: one matrix for both branches of the MLP, a second of half the width, and an embedding
    of one token more."""
    hidden, width = view.integer("hidden_size"), view.integer("ffn_dim")
    return len(layers) * (hidden * width + hidden * (width // 2)) + hidden


CSM = Architecture(
    types=("csm",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    stored=Stored(several_vocabularies=True),
)
CSM_DEPTH_DECODER_MODEL = Architecture(
    types=("csm_depth_decoder_model",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    stored=Stored(several_vocabularies=True),
)
HIGGS_AUDIO_V2 = CSM_DEPTH_DECODER_MODEL.relative(
    "higgs_audio_v2",
    conversion={"width_checked": True},
    stored=Stored(other_head=True),
)
MOSHI = Architecture(
    types=("moshi",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(kinds=windowed),
    body=Body(mlp=NO_MLP, extra=half_gated),
    uncounted="its audio codec is a network of its own",
    tensors=MOSHI_NAMES,
    rotary="halves",
    stored=Stored(more_rows=1),
)
KYUTAI_SPEECH_TO_TEXT = Architecture(
    types=("kyutai_speech_to_text",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(kinds=windowed),
    tensors=MOSHI_NAMES,
    stacks={
        "codec_model.encoder_transformer.layers": "audio",
        "codec_model.decoder_transformer.layers": "audio",
    },
    rotary="halves",
    stored=Stored(several_vocabularies=True),
)
FUN_ASR_NANO = Architecture(
    types=("fun_asr_nano",),
    config=ConfigKeys(text="text_config"),
    stacks={"multi_modal_projector.layers": "audio"},
)
OMNIASR = FUN_ASR_NANO.relative("omniasr", "vibevoice_asr", config={"tied": never}, stacks={})
OMNIASR_AUDIO = Architecture(
    types=("omniasr_audio",), attention=ENCODER_HEADS, tensors=WAV2VEC2_NAMES
)
MOSS_TRANSCRIBE_DIARIZE = FUN_ASR_NANO.relative("moss_transcribe_diarize", stacks={})
MOSS_TRANSCRIBE_DIARIZE_AUDIO = OMNIASR_AUDIO.relative(
    "moss_transcribe_diarize_audio", attention={"k_bias": False}, tensors=BART_NAMES
)

# A decoder of sound, for llama.cpp alone
WAVTOKENIZER = Architecture(types=(), gguf=(Gguf(architecture="wavtokenizer-dec", cached=False),))

ARCHITECTURES = (
    CSM,
    CSM_DEPTH_DECODER_MODEL,
    HIGGS_AUDIO_V2,
    MOSHI,
    KYUTAI_SPEECH_TO_TEXT,
    FUN_ASR_NANO,
    OMNIASR,
    OMNIASR_AUDIO,
    MOSS_TRANSCRIBE_DIARIZE,
    MOSS_TRANSCRIBE_DIARIZE_AUDIO,
    WAVTOKENIZER,
)
