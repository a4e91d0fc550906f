"""Whisper: BART's layers behind convolutions over a spectrogram."""

from ..body.body import Layers, no_head
from ..body.image_embeddings import convolution
from ..config_view import ConfigView
from ..gguf.form import Gguf
from ..gguf.towers import whisper as whisper_stacks
from .bart import BART, SEQ2SEQ


def whisper_frontend(view: ConfigView, layers: Layers) -> int:
    """Two convolutions over three frames of the spectrogram."""
    bins, hidden = view.integer("num_mel_bins"), view.integer("hidden_size")
    return convolution(view, inputs=bins, positions=3) + convolution(
        view, inputs=hidden, positions=3
    )


WHISPER = BART.relative(
    "whisper",
    attention={"k_bias": False},
    body={
        "classes": {**SEQ2SEQ, "WhisperModel": no_head},
        "default_class": "ForConditionalGeneration",
        "final_norms": 2,
        "embedding_norms": 0,
        "positions": ("max_source_positions", "max_target_positions"),
        "position_offset": 0,
        "extra": whisper_frontend,
    },
    gguf=(Gguf(architecture="whisper", reads=whisper_stacks, named=False),),
)

ARCHITECTURES = (WHISPER,)
