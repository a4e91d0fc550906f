"""RecurrentGemma: two recurrent blocks of Griffin to one layer of windowed attention."""

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Mixer, Recurrent, State
from headcount.model.spec import Layer

from ..architecture import Architecture
from ..attention.layer_kinds import SLIDING
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Mlp
from ..config_view import ConfigView
from ..states.hybrid import LINEAR, hybrid, plain_attention
from ..states.mamba import FLOAT32
from ..tensors.names import TensorNames, separate

_BLOCKS = {"recurrent": LINEAR, "attention": SLIDING}


def rg_lru(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Griffin's recurrent block (arXiv 2402.19427): two branches of width W, a convolution, and a
    recurrence with gates that are block-diagonal by head. Kept as attributes of the module."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    width = view.optional("lru_width") or hidden
    kernel = view.integer("conv1d_width")
    biases = 2 * width + hidden + width + 2 * width  # the branches, out, convolution, two gates
    weights = 3 * hidden * width + width * kernel + width + 2 * width * (width // heads)
    return (
        Recurrent(
            form="RG-LRU",
            hidden_size=hidden,
            num_attention_heads=heads,
            head_dim=width // heads,
            weights=weights + biases,
            biases=biases,
            states=(State(fixed=width * (kernel - 1)), State(fixed=width, bits=FLOAT32)),
        ),
    )


def recurrent_gemma_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`block_types` is a cycle of kinds."""
    blocks = view.strings("block_types")
    if not blocks or not set(blocks) <= set(_BLOCKS):
        raise InvalidConfigError(f"{view.where}: block_types must list {' and '.join(_BLOCKS)}")
    return tuple(_BLOCKS[blocks[i % len(blocks)]] for i in range(count))


def recurrent_gemma_width(view: ConfigView, layer: Layer) -> int:
    """RecurrentGemma counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


RECURRENT_GEMMA_NAMES = TensorNames(modules=separate("temporal_block"), rest="other")

ARCHITECTURES = (
    Architecture(
        types=("recurrent_gemma",),
        attention=AttentionShape(
            build=hybrid({SLIDING: plain_attention, LINEAR: rg_lru}, written=False),
            kinds=recurrent_gemma_kinds,
            qkv_bias="attention_bias",
            o_bias=True,
        ),
        body=Body(mlp=Mlp(width=recurrent_gemma_width, bias=True)),
        tensors=RECURRENT_GEMMA_NAMES,
        rotary="halves",
    ),
)
