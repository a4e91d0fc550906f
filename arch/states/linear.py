"""Linear attention with a matrix per head as its state, gated linear recurrences, convolutions.

h is the hidden size, K the kernel of the convolution, whose state has K columns in transformers
(K - 1 in RecurrentGemma).
"""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer, Recurrent, State
from headcount.model.spec import Layer

from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from .hybrid import Builder
from .mamba import FLOAT32, states


def gated_delta_net(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Gated delta net (arXiv 2412.06464): q and k of nk heads, v and a gate z of nv heads, a
    convolution over q, k and v, two numbers per v head from the input, out_proj."""
    hidden = view.integer("hidden_size")
    nk, nv, dk, dv = _delta_heads(view)
    kernel = view.integer("linear_conv_kernel_dim")
    channels = 2 * nk * dk + nv * dv
    return (
        Recurrent(
            form="gated delta net",
            hidden_size=hidden,
            num_attention_heads=nv,
            head_dim=dk,
            v_head_dim=dv,
            weights=hidden * (channels + 2 * nv * dv + 2 * nv) + channels * kernel + 2 * nv,
            norms=dv,
            states=states(channels, kernel, nv * dk * dv),
        ),
    )


def _delta_heads(view: ConfigView) -> tuple[int, int, int, int]:
    """Heads and widths of k and v. Only OLMo-Hybrid has nulls: then heads are as many as
    attention has, dk is 3/4 of the hidden size over the heads, and dv twice dk."""
    nk = view.optional("linear_num_key_heads") or view.integer("num_attention_heads")
    nv = view.optional("linear_num_value_heads") or view.integer("num_attention_heads")
    dk = view.optional("linear_key_head_dim") or int(0.75 * view.integer("hidden_size") / nk)
    return nk, nv, dk, view.optional("linear_value_head_dim") or 2 * dk


def kimi_delta(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Kimi delta attention (arXiv 2510.26692): its decay and its gate come out of a bottleneck of
    one head's width. `linear_attn_config` holds the sizes in older files."""
    legacy = view.child("linear_attn_config")
    heads = legacy.optional("num_heads") or view.integer("linear_num_heads")
    d = legacy.optional("head_dim") or view.integer("linear_head_dim")
    kernel = legacy.optional("short_conv_kernel_size") or view.integer("linear_conv_kernel_dim")
    return (
        delta_rule(
            view,
            heads,
            d,
            kernel,
            decay_and_gate=2 * d * (view.integer("hidden_size")) + 2 * d * heads * d,
        ),
    )


def delta_rule(
    view: ConfigView, heads: int, d: int, kernel: int, *, decay_and_gate: int
) -> Recurrent:
    hidden, width = view.integer("hidden_size"), heads * d
    own = 3 * width * kernel + width + heads + hidden * heads  # convolution, dt_bias, A, b_proj
    return Recurrent(
        form="Kimi delta attention",
        hidden_size=hidden,
        num_attention_heads=heads,
        head_dim=d,
        v_head_dim=d,
        weights=4 * hidden * width + own + decay_and_gate,
        norms=d,
        states=states(3 * width, kernel, heads * d * d),
    )


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


def short_convolution(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """LFM2's gated short convolution: in_proj [3h, h], K columns per channel, out_proj [h, h]."""
    hidden, kernel = view.integer("hidden_size"), view.integer("conv_L_cache")
    biases = 5 * hidden if view.flag("conv_bias") else 0
    return (
        Recurrent(
            form="short convolution",
            hidden_size=hidden,
            weights=4 * hidden * hidden + hidden * kernel + biases,
            biases=biases,
            states=(State(fixed=hidden * kernel, columns=kernel),),
        ),
    )


def with_ngrams(build: Builder) -> Builder:
    """Qwen4: layers in `ple_layer_ids`, from 1 on, add embeddings of n-grams. They keep what their
    dilated convolution needs and the last ids, which are int64."""

    def read(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
        layers, chosen = build(shape, view), view.integers("ple_layer_ids") or ()
        if not chosen:
            return layers
        ngram = view.integer("ngram_size")
        columns = (view.integer("ple_conv_kernel_size", minimum=1) - 1) * ngram
        kept = (
            State(fixed=view.integer("hc_count") * view.integer("hidden_size") * columns),
            State(fixed=ngram - 1, bits=64),
        )
        return tuple(
            replace(layer, mixers=(_keeping(layer.mixers[0], kept), *layer.mixers[1:]))
            if layer.index + 1 in chosen
            else layer
            for layer in layers
        )

    return read


def _keeping(mixer: Mixer, kept: tuple[State, ...]) -> Mixer:
    assert isinstance(mixer, (Recurrent, Attention))
    return replace(mixer, states=(*mixer.states, *kept))
