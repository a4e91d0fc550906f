"""MusicGen: decoders of codes of sound that attend to a text or follow it."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layers import decoder_layers
from ..attention.shape import AttentionShape
from ..attention.shared import MHA
from ..body.uncounted import AUDIO_CODEC
from ..config_view import ConfigView
from ..tensors.names import BART_NAMES


def musicgen_melody_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """MusicGen Melody: the encoded text and melody stand in front of the tokens, and are kept as
    they are."""

    def with_prefix(mixer: Mixer) -> Attention:
        assert isinstance(mixer, Attention)
        kept = State(
            per_token=mixer.num_key_value_heads * (mixer.head_dim + mixer.v_head_dim),
            limit=mixer.window and mixer.window - 1,
            sees="both",
            key_value=True,
        )
        return replace(mixer, cached=False, states=(kept,))

    return tuple(
        replace(layer, mixers=tuple(with_prefix(mixer) for mixer in layer.mixers))
        for layer in decoder_layers(shape, view)
    )


MUSICGEN_DECODER = Architecture(
    types=("musicgen_decoder",),
    attention=replace(MHA, cross=True),
    tensors=BART_NAMES,
    rotary="none",
    conversion=Conversion(codebooks=True),
)

ARCHITECTURES = (
    Architecture(
        types=("musicgen", "musicgen_melody"),
        config=ConfigKeys(text="decoder"),
        uncounted=AUDIO_CODEC,
        conversion=Conversion(codebooks=True),
    ),
    MUSICGEN_DECODER,
    MUSICGEN_DECODER.relative(
        "musicgen_melody_decoder",
        attention={"build": musicgen_melody_layers, "cross": False},
        conversion=Conversion(codebooks=True),
    ),
)
