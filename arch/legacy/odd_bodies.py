"""What single families of `body_rows` hold beside the common shape: the callables of their rows."""

from math import isqrt

from headcount.model.spec import Layer

from ..body.body import Layers
from ..body.feed_forward import after, matrices, typed
from ..body.hyper_connections import (
    Extra as Extra,
)
from ..body.hyper_connections import (
    hyper_connections as hyper_connections,
)
from ..config_view import ConfigView
from ..decoders.cohere import (
    cohere_dense_width as cohere_dense_width,
)
from ..decoders.deepseek import (
    gated_norms as gated_norms,
)
from ..decoders.deepseek import (
    longcat_experts as longcat_experts,
)
from ..decoders.deepseek import (
    longcat_idle as longcat_idle,
)
from ..decoders.deepseek import (
    norm_after_experts as norm_after_experts,
)
from ..decoders.ernie import (
    ALL_BUT_FIRST as ALL_BUT_FIRST,
)
from ..decoders.ernie import (
    idle_image_experts as idle_image_experts,
)
from ..decoders.ernie import (
    image_experts as image_experts,
)
from ..decoders.gpt_oss import (
    flint_layers as flint_layers,
)
from ..decoders.gpt_oss import (
    step_layers as step_layers,
)
from ..decoders.nemotron import (
    nemotron_layers as nemotron_layers,
)
from ..decoders.nemotron import (
    nemotron_width as nemotron_width,
)

EVERY_OR_TYPED = typed(after(0))

# --- norms -----------------------------------------------------------------------------------


def hyperclovax_norms(view: ConfigView, layer: Layer) -> int:
    """Two more, after each half, unless `use_post_norm` says no."""
    return 4 if view.flag("use_post_norm") else 2


def lfm3_norms(view: ConfigView, layer: Layer) -> int:
    """Two more, after each half, unless `use_sandwich_norm` says no."""
    return 4 if view.flag("use_sandwich_norm") else 2


def widths(view: ConfigView, layers: Layers) -> int:
    """BitNet: a norm of the width of the MLP in each layer."""
    return len(layers) * view.integer("intermediate_size")


def one_norm(view: ConfigView, layers: Layers) -> int:
    """A vector of the hidden size in each layer: the bias of JetMoE's experts."""
    return len(layers) * view.integer("hidden_size")


def always_xielu(view: ConfigView, layers: Layers) -> int:
    """Two learned numbers of the activation in each layer."""
    return 2 * len(layers)


# --- widths of the MLP -------------------------------------------------------------------------


def no_width(view: ConfigView, layer: Layer) -> int:
    """Layers without an MLP."""
    return 0


def multiple_width(view: ConfigView, layer: Layer) -> int:
    """GPT-NeoX Japanese."""
    return view.integer("hidden_size") * view.integer("intermediate_multiple_size")


def lfm2_width(view: ConfigView, layer: Layer) -> int:
    """LFM2: two thirds, times a factor, rounded up to a multiple, unless that is switched off."""
    width = view.integer("intermediate_size")
    if not view.flag("block_auto_adjust_ff_dim"):
        return width
    width = int(2 * width / 3)
    factor = view.get("block_ffn_dim_multiplier")
    if not isinstance(factor, (int, float)):
        return width
    multiple = view.integer("block_multiple_of")
    return -(-int(factor * width) // multiple) * multiple


def half_width(view: ConfigView, layer: Layer) -> int:
    """RecurrentGemma counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


def xlstm_width(view: ConfigView, layer: Layer) -> int:
    """`ffn_proj_factor` times the hidden size, rounded up to a multiple."""
    factor = view.get("ffn_proj_factor")
    multiple = view.integer("ffn_round_up_to_multiple_of")
    width = view.integer("hidden_size") * (factor if isinstance(factor, (int, float)) else 1)
    return int(-(-width // multiple) * multiple)


# --- which layers hold experts -----------------------------------------------------------------


# --- blocks of their own -----------------------------------------------------------------------


def rwkv_channel_mix(view: ConfigView, layers: Layers) -> int:
    """Two mixing vectors, a key, a value and a receptance, and one norm before the first layer."""
    hidden = view.integer("hidden_size")
    width = view.optional("intermediate_size") or 4 * hidden
    each = 2 * hidden + 2 * hidden * width + hidden * hidden
    return len(layers) * each + 2 * hidden


def zamba_blocks(view: ConfigView, layers: Layers) -> int:
    """The MLP and the norms of each shared block, the first over a width of 2h, and a square
    matrix behind every use. Zamba2 adds low-rank adapters to the MLP for each use of a block."""
    hidden = view.integer("hidden_size")
    width = view.optional("intermediate_size") or 4 * hidden
    hybrid = [layer for layer in layers if len(layer.mixers) == 2]
    owned = [i for i, layer in enumerate(hybrid) if layer.mixers[0].parameters().total]
    block = matrices(hidden, width, gated=True, bias=view.flag("add_bias_linear")) + 3 * hidden
    rank = view.optional("adapter_rank", minimum=0) or 0
    blocks = view.optional("num_mem_blocks") or 1
    uses = sum(len(range(i % blocks, len(hybrid), blocks)) for i in owned)
    adapters = uses * rank * (hidden + 2 * width)
    return len(owned) * block + adapters + len(hybrid) * hidden * hidden


def zaya_routers(view: ConfigView, layers: Layers) -> int:
    """A router of three layers that also sees the last layer's router, and learned scales and
    biases of the residual stream."""
    hidden, inner = view.integer("hidden_size"), view.integer("router_hidden_size")
    outputs = view.integer("num_experts") + 1
    router = (hidden + 1) * inner + inner + 2 * inner * (inner + 1) + inner * outputs
    count = len(layers)
    return count * (router + 8 * hidden) + (count - 1) * inner + 2 * hidden


def cpmant_embeddings(view: ConfigView, layers: Layers) -> int:
    """Prompts, segments and a table of relative positions."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    prompts = view.integer("prompt_types") * view.integer("prompt_length", minimum=0)
    segments = view.integer("segment_types")
    buckets = view.integer("position_bias_num_buckets") + segments**2
    return (prompts + segments) * hidden + buckets * heads


def trocr_embeddings(view: ConfigView, layers: Layers) -> int:
    """Learned positions and a norm of the embedding, both on demand."""
    learned = view.flag("use_learned_position_embeddings")
    rows = view.integer("max_position_embeddings") + 2 if learned else 0
    return (rows + 2 * view.flag("layernorm_embedding")) * view.integer("hidden_size")


def dory_scales(view: ConfigView, layers: Layers) -> int:
    """nGPT's learned scales (arXiv 2410.01131) of both residuals and the MLP; the head has one per
    token."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    return len(layers) * 2 * (hidden + width)


def inkling(view: ConfigView, layers: Layers) -> int:
    """A norm of the embedding; in each layer two short convolutions and a scale of the MLP; and the
    shared experts, which the router weighs like the others."""
    hidden, count = view.integer("hidden_size"), len(layers)
    shared = view.optional("n_shared_experts", minimum=0) or 0
    expert = matrices(hidden, view.integer("moe_intermediate_size"), gated=True)
    each = 2 * hidden * view.integer("conv_kernel_size") + 1
    sparse = len(EVERY_OR_TYPED(view, count))
    return hidden + count * each + sparse * shared * (hidden + expert)


def doge_experts(view: ConfigView, layers: Layers) -> int:
    """With `is_moe` each layer retrieves from `num_experts` pairs of vectors, by two key sets."""
    if not view.flag("is_moe"):
        return 0
    count = view.integer("num_experts")
    return len(layers) * view.integer("hidden_size") * (2 * isqrt(count) + 2 * count)


def xlstm_biases(view: ConfigView, layers: Layers) -> int:
    """Of both norms of each layer; the last norm has none."""
    return 2 * len(layers) * view.integer("hidden_size") if view.flag("use_bias") else 0


def rotary_scales(view: ConfigView, layers: Layers) -> int:
    """Mistral Large 4 learns a scale of each rotary frequency."""
    return view.integer("qk_rope_head_dim") // 2


def time_conditions(view: ConfigView, layers: Layers) -> int:
    """Voxtral Realtime: two matrices of rank 32 that modulate a norm in each layer."""
    return len(layers) * 2 * 32 * view.integer("hidden_size")


def half_gated(view: ConfigView, layers: Layers) -> int:
    """Moshi: one matrix for both branches of the MLP, a second of half the width, and an embedding
    of one token more."""
    hidden, width = view.integer("hidden_size"), view.integer("ffn_dim")
    return len(layers) * (hidden * width + hidden * (width // 2)) + hidden


def hrm_start(view: ConfigView, layers: Layers) -> int:
    """The first state of the low module."""
    return view.integer("hidden_size")


def xlnet_mask(view: ConfigView, layers: Layers) -> int:
    return view.integer("hidden_size")
