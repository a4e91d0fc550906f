"""Bailing and Lara: linear attention with a layer of full attention now and then."""

from dataclasses import replace

from headcount.model.mixers import Mixer

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL, SLIDING
from ..attention.layers import latent_attention
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.feed_forward import Experts, after_dense, typed
from ..body.shared import ONE_SHARED
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain_attention
from ..states.kinds import every_nth
from ..states.linear import delta_rule, gated_delta_net
from ..tensors.names import HYBRID_NAMES, MLA_NAMES, TensorNames
from ..tying import never


def lara_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    cycle = (LINEAR, SLIDING, LINEAR, FULL, SLIDING)
    return tuple(cycle[i % 5] for i in range(count))


def bailing_delta(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """The same with full projections for decay and gate, and the heads of attention: files that
    transformers saves name them again, since it overwrites head_dim by the rotated part."""
    heads = _saved_or(view, "linear_num_heads", "num_attention_heads")
    d = _saved_or(view, "linear_head_dim", "head_dim")
    kernel = _saved_or(view, "linear_conv_kernel_dim", "short_conv_kernel_size")
    full = 2 * view.integer("hidden_size") * heads * d
    return (delta_rule(view, heads, d, kernel, decay_and_gate=full),)


def _saved_or(view: ConfigView, saved: str, own: str) -> int:
    return view.integer(own if view.config.get(saved) is None else saved)


def head_gated_latent(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Latent attention with a gate per head (Bailing)."""
    mixer = latent_attention(view)
    return (replace(mixer, other_parameters=mixer.hidden_size * mixer.num_attention_heads),)


# Its linear layers bear the same names; what is no attention is sorted by the config.
BAILING_NAMES = TensorNames(
    modules={
        path.replace("self_attn.", "attention."): part for path, part in MLA_NAMES.modules.items()
    }
    | {"attention.dense": "o", **MLA_NAMES.modules},
    rest="other",
)

ARCHITECTURES = (
    Architecture(
        types=("bailing_hybrid",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(
            build=hybrid({FULL: head_gated_latent, LINEAR: bailing_delta}),
            kinds=every_nth(6, FULL, LINEAR, "layer_group_size"),
        ),
        body=Body(experts=Experts(layers=typed(after_dense), shared="n_shared_experts")),
        tensors=BAILING_NAMES,
        gguf=(
            Gguf(
                architecture="bailingmoe3",
                recurrence=Recurrence(form="Kimi delta", layers="without heads"),
            ),
        ),
    ),
    Architecture(
        types=("lara_mini",),
        config=ConfigKeys(aliases=LAYER_TYPES),
        attention=replace(
            LLAMA_ATTENTION,
            build=hybrid(
                {FULL: plain_attention, SLIDING: plain_attention, LINEAR: gated_delta_net}
            ),
            kinds=lara_kinds,
            norm="head",
        ),
        body=Body(experts=ONE_SHARED),
        tensors=HYBRID_NAMES,
    ),
)
