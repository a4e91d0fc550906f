"""RWKV and xLSTM: nothing attends, and every layer keeps a recurrent state."""

from headcount.model.mixers import Recurrent, State
from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys
from ..attention.layers import equal_layers, layer_count
from ..attention.shape import AttentionShape
from ..body.body import WEIGHT_AND_BIAS, Body, Layers
from ..body.feed_forward import Mlp
from ..body.shared import NO_MLP
from ..config_view import ConfigView, positive
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LAYER_TYPES
from ..states.mamba import FLOAT32
from ..tensors.names import NO_ATTENTION_NAMES
from ..tying import never


def rwkv_channel_mix(view: ConfigView, layers: Layers) -> int:
    """Two mixing vectors, a key, a value and a receptance, and one norm before the first layer."""
    hidden = view.integer("hidden_size")
    width = view.optional("intermediate_size") or 4 * hidden
    each = 2 * hidden + 2 * hidden * width + hidden * hidden
    return len(layers) * each + 2 * hidden


def xlstm_biases(view: ConfigView, layers: Layers) -> int:
    """Of both norms of each layer; the last norm has none."""
    return 2 * len(layers) * view.integer("hidden_size") if view.flag("use_bias") else 0


def xlstm_width(view: ConfigView, layer: Layer) -> int:
    """`ffn_proj_factor` times the hidden size, rounded up to a multiple unless it is less than one
    above the last (round_up_to_next_multiple_of)."""
    width = view.integer("hidden_size") * (view.positive("ffn_proj_factor") or 1)
    multiple = view.integer("ffn_round_up_to_multiple_of")
    return int((width + multiple - 1) // multiple * multiple)


def rwkv_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """RWKV-4 (arXiv 2305.13048): key, value, receptance and output, a decay and a bonus per channel
    and three mixing vectors. It keeps the last input of both halves of the block, and three float32
    vectors: numerator, denominator and maximum of its softmax."""
    hidden = view.integer("hidden_size")
    width = view.optional("attention_hidden_size") or hidden
    mixer = Recurrent(
        form="RWKV",
        hidden_size=hidden,
        weights=4 * hidden * width + 2 * width + 3 * hidden,
        states=(State(fixed=2 * hidden), State(fixed=3 * hidden, bits=FLOAT32)),
    )
    return equal_layers(mixer, layer_count(view))


def mlstm_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """mLSTM layers (arXiv 2405.04517): q, k, v, an output gate, two gates per head with biases, and
    a normaliser. The state of a head is [qk, v] and [qk] and a number; its widths are rounded up to
    64 where the state is allocated."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_heads")
    qk, v = (
        int(hidden * positive(view.get(name), view.where, name))
        for name in ("qk_dim_factor", "v_dim_factor")
    )
    state_qk, state_v = (-(-width // 64) * 64 // heads for width in (qk, v))
    biases = 2 * heads + (2 * qk + 2 * v + hidden) * view.flag("use_bias")
    mixer = Recurrent(
        form="mLSTM",
        hidden_size=hidden,
        num_attention_heads=heads,
        head_dim=qk // heads,
        v_head_dim=v // heads,
        weights=hidden * (2 * qk + 3 * v + 2 * heads) + biases,
        norms=v * (1 + view.flag("use_bias")),
        biases=biases,
        states=(State(fixed=heads * (state_qk * state_v + state_qk + 1)),),
    )
    return equal_layers(mixer, layer_count(view))


RWKV6 = Recurrence(form="RWKV-6", layers="all")
RWKV7 = Recurrence(form="RWKV-7", layers="all")

ARCHITECTURES = (
    Architecture(
        types=("rwkv",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=AttentionShape(build=rwkv_layers),
        body=Body(norm=WEIGHT_AND_BIAS, mlp=NO_MLP, more=rwkv_channel_mix),
        tensors=NO_ATTENTION_NAMES,
    ),
    Architecture(
        types=("xlstm",),
        config=ConfigKeys(
            tied=never, aliases=LAYER_TYPES, overriding={"num_hidden_layers": ("num_blocks",)}
        ),
        attention=AttentionShape(build=mlstm_layers),
        body=Body(mlp=Mlp(width=xlstm_width, bias="use_bias"), more=xlstm_biases),
        tensors=NO_ATTENTION_NAMES,
    ),
    # Later RWKVs, alone and in a body of Qwen's, are not in transformers.
    Architecture(
        types=(),
        gguf=(
            Gguf(architecture="rwkv6", recurrence=RWKV6),
            Gguf(architecture="rwkv6qwen2", recurrence=RWKV6),
            Gguf(architecture="rwkv7", recurrence=RWKV7),
            Gguf(architecture="arwkv7", recurrence=RWKV7),
        ),
    ),
)
