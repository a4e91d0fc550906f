"""Linear attention with a matrix per head as its state, gated linear recurrences, convolutions.

h is the hidden size, K the kernel of the convolution, whose state has K columns in transformers
(K - 1 in RecurrentGemma).
"""

from headcount.model.mixers import Mixer, Recurrent

from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from .mamba import states


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
            decay_and_gate=_decay_and_gate(view, legacy, heads, d),
        ),
    )


def _decay_and_gate(view: ConfigView, legacy: ConfigView, heads: int, d: int) -> int:
    """Two bottlenecks of one head's width; with `use_full_rank_gate` the gate is one matrix."""
    hidden = view.integer("hidden_size")
    bottleneck = d * hidden + d * heads * d
    full = legacy.flag("use_full_rank_gate")
    return bottleneck + (hidden * heads * d if full else bottleneck)


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
