"""Hybrids of linear and full attention beside Qwen's."""

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL, SLIDING
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, after_dense, typed
from ..body.shapes import ONE_SHARED
from ..states.gated import latent_per_head
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain
from ..states.kinds import every_nth, lara_kinds
from ..states.linear import bailing_delta, gated_delta_net
from ..tensors.names import HYBRID as HYBRID_NAMES
from ..tensors.names import MLA as MLA_NAMES
from ..tensors.names import TensorNames
from ..tying import never

# Its linear layers bear the same names; what is no attention is sorted by the config.
BAILING_NAMES = TensorNames(
    modules={
        path.replace("self_attn.", "attention."): part for path, part in MLA_NAMES.modules.items()
    }
    | {"attention.dense": "o", **MLA_NAMES.modules},
    rest="other",
)


BAILING_HYBRID = Architecture(
    types=("bailing_hybrid",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(
        build=hybrid({FULL: latent_per_head, LINEAR: bailing_delta}),
        kinds=every_nth(6, FULL, LINEAR, "layer_group_size"),
    ),
    body=Body(experts=Experts(layers=typed(after_dense), shared="n_shared_experts")),
    tensors=BAILING_NAMES,
)
LARA_MINI = Architecture(
    types=("lara_mini",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=hybrid({FULL: plain, SLIDING: plain, LINEAR: gated_delta_net}),
        kinds=lara_kinds,
        qkv_bias="attention_bias",
        o_bias="attention_bias",
        norm="head",
    ),
    body=Body(experts=ONE_SHARED),
    tensors=HYBRID_NAMES,
)

ARCHITECTURES = (BAILING_HYBRID, LARA_MINI)
