"""MusicGen."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layers import decoder
from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from ..tensors.names import BART as BART_NAMES


def prefix_in_front(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
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
        for layer in decoder(shape, view)
    )


MUSICGEN = Architecture(
    types=("musicgen", "musicgen_melody"),
    config=ConfigKeys(text="decoder"),
    uncounted="its audio codec is a network of its own",
    conversion=Conversion(codebooks=True),
)
MUSICGEN_DECODER = Architecture(
    types=("musicgen_decoder",),
    attention=AttentionShape(fixed_head_dim=True, kv_heads_from="query heads", cross=True),
    tensors=BART_NAMES,
    rotary="none",
    conversion=Conversion(codebooks=True),
)
MUSICGEN_MELODY_DECODER = MUSICGEN_DECODER.relative(
    "musicgen_melody_decoder", attention={"build": prefix_in_front, "cross": False}
)

ARCHITECTURES = (MUSICGEN, MUSICGEN_DECODER, MUSICGEN_MELODY_DECODER)
