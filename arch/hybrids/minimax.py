"""MiniMax: lightning attention, and sparse attention with an indexer in M3."""

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, Mlp, flagged, typed
from ..body.shapes import MIXTRAL_BODY
from ..states.hybrid import INDEXED, LAYER_TYPES, LINEAR, hybrid, plain
from ..states.indexed import with_key_value
from ..states.kinds import at, m3_kinds
from ..states.linear import lightning
from ..tensors.names import HYBRID as HYBRID_NAMES
from ..tying import either_word

MINIMAX = Architecture(
    types=("minimax",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=hybrid({FULL: plain, LINEAR: lightning}), kinds=at(0, 2, FULL, LINEAR)
    ),
    body=MIXTRAL_BODY,
    tensors=HYBRID_NAMES,
    rotary="halves",
)
MINIMAX_M3_VL = Architecture(
    types=("minimax_m3_vl",), config=ConfigKeys(text="text_config", tied=either_word)
)
MINIMAX_M3_VL_TEXT = MINIMAX.relative(
    "minimax_m3_vl_text",
    attention={
        "build": hybrid({FULL: plain, INDEXED: with_key_value("index_n_heads", "index_head_dim")}),
        "kinds": m3_kinds,
        "norm": "head",
    },
    body=Body(
        mlp=Mlp(width="dense_intermediate_size"),
        experts=Experts(
            count="num_local_experts",
            width="intermediate_size",
            layers=typed(flagged("moe_layer_freq")),
            shared=1,
            shared_width="shared_intermediate_size",
        ),
    ),
    rotary=None,
)

ARCHITECTURES = (MINIMAX, MINIMAX_M3_VL, MINIMAX_M3_VL_TEXT)
