"""State space models: Mamba (arXiv 2312.00752) and Mamba-2 (arXiv 2405.21060).

h is the hidden size, I the inner width, N the state size, K the kernel of the convolution. The
convolution's state has K columns in transformers, and the recurrent state is float32.
"""

from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Mixer, Recurrent, State

from ..attention.shape import AttentionShape
from ..config_view import ConfigView, positive
from .hybrid import MixerMaker

FLOAT32 = 32
# The keys of Mamba-2 in Bamba and its kin, see `mamba2`.
BAMBA_KEYS = {
    **{"expand": "mamba_expand", "n": "mamba_d_state", "groups": "mamba_n_groups"},
    **{"kernel": "mamba_d_conv", "heads": "mamba_n_heads", "conv_bias": "mamba_conv_bias"},
    **{"in_bias": "mamba_proj_bias", "out_bias": "mamba_proj_bias"},
}


def states(
    channels: int, kernel: int, recurrent: int, bits: int | None = FLOAT32
) -> tuple[State, ...]:
    """A convolution's state, which follows the cache's dtype, and a recurrent one of `bits`."""
    return (State(fixed=channels * kernel, columns=kernel), State(fixed=recurrent, bits=bits))


def inner_width(view: ConfigView, key: str = "expand") -> int:
    """`intermediate_size` where a pure Mamba's file has it, else expand * hidden_size."""
    factor = positive(view.get(key), view.where, key)
    return int(factor * view.integer("hidden_size"))


def mamba1(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """`mamba` and `falcon_mamba`."""
    return (
        _mamba1(
            view,
            width=view.optional("intermediate_size") or inner_width(view),
            n=view.integer("state_size"),
            kernel=view.integer("conv_kernel"),
            rank=_rank(view, "time_step_rank"),
            conv_bias=view.flag("use_conv_bias"),
            bias=view.flag("use_bias"),
        ),
    )


def mamba1_of_hybrid(*, normed: bool) -> MixerMaker:
    """Jamba's, with `normed`: RMSNorms of the step's rank and of B and C; and Zamba's."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        n, rank = view.integer("mamba_d_state"), _rank(view, "mamba_dt_rank")
        mixer = _mamba1(
            view,
            width=inner_width(view, "mamba_expand"),
            n=n,
            kernel=view.integer("mamba_d_conv"),
            rank=rank,
            conv_bias=view.flag("mamba_conv_bias"),
            bias=view.flag("mamba_proj_bias"),
            norms=rank + 2 * n if normed else 0,
        )
        return (mixer,)

    return make


def _rank(view: ConfigView, name: str) -> int:
    """The rank of the step; `auto` is a sixteenth of the hidden size, rounded up."""
    if view.get(name) == "auto":
        return -(-view.integer("hidden_size") // 16)
    return view.integer(name)


def _mamba1(
    view: ConfigView,
    *,
    width: int,
    n: int,
    kernel: int,
    rank: int,
    conv_bias: bool,
    bias: bool,
    norms: int = 0,
) -> Recurrent:
    """in_proj [2I, h], a convolution per channel, x_proj [rank + 2N, I], dt_proj [I, rank] with
    its bias, A [I, N], D [I], out_proj [h, I]."""
    hidden = view.integer("hidden_size")
    biases = width + width * conv_bias + (2 * width + hidden) * bias
    matrices = 3 * hidden * width + width * kernel + width * (2 * rank + 2 * n)
    return Recurrent(
        form="Mamba",
        hidden_size=hidden,
        weights=matrices + width * (n + 1) + biases,
        norms=norms,
        biases=biases,
        states=states(width, kernel, width * n),
    )


def mamba2(
    form: dict[str, str], *, width: str | None = None, gated_norm: bool | str = True
) -> MixerMaker:
    """Mamba-2 by the class's names: `expand`, `n`, `groups`, `kernel`, `heads`, `head_dim`,
    `conv_bias`, `in_bias`, `out_bias`. `width` names a key that sets the inner width."""

    def make(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
        given = view.optional(width) if width else None
        if given is not None:
            inner = given
        elif "expand" in form:
            inner = inner_width(view, form["expand"])
        else:
            inner = view.integer(form["heads"]) * view.integer(form["head_dim"])
        heads = view.integer(form["heads"])
        return (_mamba2(view, form, heads=heads, inner=inner, normed=view.flag(gated_norm)),)

    return make


def _mamba2(
    view: ConfigView, form: dict[str, str], *, heads: int, inner: int, normed: bool
) -> Recurrent:
    """in_proj [2I + 2GN + heads, h], a convolution of I + 2GN channels, A, D and the step's bias
    per head, a gated RMSNorm [I], out_proj [h, I]."""
    if inner % heads:
        raise InvalidConfigError(
            f"{view.where}: the inner width {inner} is not divisible by {form['heads']} {heads}"
        )
    hidden, n = view.integer("hidden_size"), view.integer(form["n"])
    kernel = view.integer(form["kernel"])
    channels = inner + 2 * view.integer(form["groups"]) * n
    rows = inner + channels + heads
    conv_bias = form.get("conv_bias")
    biases = (
        (channels if conv_bias is None or view.flag(conv_bias) else 0)
        + rows * view.flag(form["in_bias"])
        + hidden * view.flag(form["out_bias"])
    )
    return Recurrent(
        form="Mamba-2",
        hidden_size=hidden,
        num_attention_heads=heads,
        head_dim=inner // heads,
        weights=hidden * rows + channels * kernel + 3 * heads + inner * hidden + biases,
        norms=inner if normed else 0,
        biases=biases,
        states=states(channels, kernel, inner * n),
    )
