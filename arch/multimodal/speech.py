"""Models that hear or speak around a language model."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion, Stored
from ..attention.layer_kinds import windowed
from ..attention.shape import AttentionShape
from ..attention.shared import ENCODER_MHA, LLAMA_ATTENTION
from ..body.body import Body, Layers
from ..body.shared import NO_MLP
from ..body.uncounted import AUDIO_CODEC
from ..config_view import ConfigView
from ..encoders.wav2vec2 import WAV2VEC2_NAMES
from ..gguf.form import Gguf
from ..tensors.names import BART_NAMES, TensorNames, separate
from ..tying import never


def moshi_mlps(view: ConfigView, layers: Layers) -> int:
    """Moshi: one matrix for both branches of the MLP, a second of half the width, and an embedding
    of one token more."""
    hidden, width = view.integer("hidden_size"), view.integer("ffn_dim")
    return len(layers) * (hidden * width + hidden * (width // 2)) + hidden


MOSHI_NAMES = TensorNames(
    modules=separate("self_attn") | {f"self_attn.{p}_proj.linear": p for p in "qkvo"}
)

ARCHITECTURES = (
    Architecture(
        types=("csm",),
        config=ConfigKeys(tied=never),
        attention=LLAMA_ATTENTION,
        stored=Stored(several_vocabularies=True),
    ),
    Architecture(
        types=("csm_depth_decoder_model",),
        attention=LLAMA_ATTENTION,
        stored=Stored(several_vocabularies=True),
    ),
    Architecture(
        types=("higgs_audio_v2",),
        attention=LLAMA_ATTENTION,
        conversion=Conversion(width_checked=True),
        stored=Stored(other_head=True),
    ),
    Architecture(
        types=("moshi",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(kinds=windowed),
        conversion=Conversion(whole_width=True),
        body=Body(mlp=NO_MLP, more=moshi_mlps),
        uncounted=AUDIO_CODEC,
        tensors=MOSHI_NAMES,
        rotary="halves",
        stored=Stored(more_rows=1),
    ),
    Architecture(
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
    ),
    MULTIMODAL.relative("fun_asr_nano", stacks={"multi_modal_projector.layers": "audio"}),
    MULTIMODAL.relative("omniasr", "vibevoice_asr", config={"tied": never}),
    Architecture(types=("omniasr_audio",), attention=ENCODER_MHA, tensors=WAV2VEC2_NAMES),
    MULTIMODAL.relative("moss_transcribe_diarize"),
    Architecture(
        types=("moss_transcribe_diarize_audio",),
        attention=replace(ENCODER_MHA, k_bias=False),
        tensors=BART_NAMES,
    ),
    # A decoder of sound, for llama.cpp alone
    Architecture(types=(), gguf=(Gguf(architecture="wavtokenizer-dec", cached=False),)),
)
