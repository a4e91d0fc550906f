"""Whisper: BART's layers behind convolutions over a spectrogram."""

from ..body.body import no_head
from ..body.sound_towers import spectrogram_convolutions
from ..gguf.form import Gguf
from ..gguf.towers import whisper_stacks
from .bart import BART, SEQ2SEQ

ARCHITECTURES = (
    BART.relative(
        "whisper",
        attention={"k_bias": False},
        body={
            "classes": {**SEQ2SEQ, "WhisperModel": no_head},
            "default_class": "ForConditionalGeneration",
            "final_norms": 2,
            "embedding_norms": 0,
            "positions": ("max_source_positions", "max_target_positions"),
            "position_offset": 0,
            "more": spectrogram_convolutions,
        },
        gguf=(Gguf(architecture="whisper", reads=whisper_stacks, named=False),),
    ),
)
