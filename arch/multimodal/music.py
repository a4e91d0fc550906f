"""MusicGen: decoders of codes of sound that attend to a text or follow it."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, State
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion, Stored
from ..attention.layers import decoder_layers
from ..attention.shape import AttentionShape
from ..attention.shared import MHA
from ..body.body import WEIGHT_AND_BIAS, Body, Layers, no_head, one_per_mixer
from ..body.feed_forward import Mlp
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


def codebook_embeddings(view: ConfigView, layers: Layers) -> int:
    """An embedding for each codebook, with a row for what pads it."""
    rows = view.integer("num_codebooks") * (view.integer("vocab_size") + 1)
    return rows * view.integer("hidden_size")


def codebook_heads(body: Body, view: ConfigView, tied: bool) -> int:
    """A matrix for each codebook, which no file ties."""
    rows = view.integer("num_codebooks") * view.integer("vocab_size")
    return rows * view.integer("hidden_size")


MUSICGEN_DECODER = Architecture(
    types=("musicgen_decoder",),
    attention=replace(MHA, cross=True),
    tensors=BART_NAMES,
    body=Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        vocabulary=None,
        mlp=Mlp(width="ffn_dim", gated=False),
        more=codebook_embeddings,
        classes={"ForCausalLM": codebook_heads, "Model": no_head},
    ),
    rotary="none",
    conversion=Conversion(codebooks=True),
    stored=Stored(several_vocabularies=True),
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
        stored=MUSICGEN_DECODER.stored,
    ),
)
