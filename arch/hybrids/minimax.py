"""MiniMax: lightning attention, and sparse attention with an indexer in M3."""

from dataclasses import replace

from headcount.model.mixers import Mixer, Recurrent, State

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..attention.shared import TOWER_MHA_BIASED
from ..body.body import Body, Layers
from ..body.feed_forward import Mlp, flagged_layers, typed
from ..body.image_embeddings import patches
from ..body.projectors import linear
from ..body.shared import IMAGE, SAME_WIDTH
from ..body.towers import Tower, fixed_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer, Recurrence
from ..gguf.keys import Keys
from ..gguf.states import LIGHTNING
from ..modules.names import BLOCK_SPARSE
from ..states.hybrid import INDEXED, LAYER_TYPES, LINEAR, hybrid, plain_attention
from ..states.indexed import indexed_attention
from ..states.kinds import every_nth_from
from ..tensors.names import HYBRID_NAMES
from ..tying import either_says


def after_dense_blocks(keys: Keys, count: int) -> list[bool]:
    """The layers with experts have an indexer."""
    dense = keys.number("leading_dense_block_count")
    return [i >= dense for i in range(count)]


def minimax_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`attn_type_list` marks the layers of full attention with 1; the class of transformers, which
    does not know that key, makes every second layer full."""
    flags = view.integers("attn_type_list", count=count)
    if flags is None:
        return every_nth_from(0, 2, FULL, LINEAR)(view, count)
    return tuple(FULL if flag else LINEAR for flag in flags)


def minimax_m3_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    flags = view.child("sparse_attention_config").integers("sparse_attention_freq")
    if flags is None:
        return (FULL,) * count
    return tuple(INDEXED if flag else FULL for flag in flags)


def lightning_attention(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Lightning attention (MiniMax-01, arXiv 2501.08313): one [d, d] state per head, of the dtype
    of the model, with an output gate."""
    hidden, heads = view.integer("hidden_size"), view.integer("num_attention_heads")
    d = view.optional("head_dim") or hidden // heads
    return (
        Recurrent(
            form="lightning attention",
            hidden_size=hidden,
            num_attention_heads=heads,
            head_dim=d,
            v_head_dim=d,
            weights=5 * hidden * heads * d,
            norms=heads * d,
            states=(State(fixed=heads * d * d),),
        ),
    )


def frames(view: ConfigView, layers: Layers) -> int:
    """Patches of several frames; positions are rotary."""
    return patches(view, bias=False) * view.integer("temporal_patch_size")


def minimax_m3_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices over each patch, and two over joined patches."""
    inner, out = view.integer("projector_hidden_size"), text.integer("hidden_size")
    merged = out * tower.integer("spatial_merge_size") ** 2
    each = linear(tower.integer("hidden_size"), inner) + linear(inner, out)
    return each + linear(merged, inner) + linear(inner, out)


MINIMAX_M3_TOWER = Tower(
    body=replace(IMAGE, more=frames),  # its one norm outside layers stands before them
    attention=TOWER_MHA_BIASED,
    model_type="minimax_m3_vl_vision",
)
MINIMAX = Architecture(
    types=("minimax",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=hybrid({FULL: plain_attention, LINEAR: lightning_attention}),
        kinds=minimax_kinds,
    ),
    body=Body(experts=SAME_WIDTH),
    feed_forward=BLOCK_SPARSE,
    tensors=HYBRID_NAMES,
    rotary="halves",
    gguf=(
        Gguf(
            architecture="minimax-01",
            recurrence=Recurrence(form=LIGHTNING, layers="interval", period=8),
        ),
    ),
)
MINIMAX_M3 = Architecture(
    types=("minimax_m3_vl_text",),
    config=ConfigKeys(aliases=LAYER_TYPES),
    attention=AttentionShape(
        build=hybrid(
            {
                FULL: plain_attention,
                INDEXED: indexed_attention("index_n_heads", "index_head_dim"),
            }
        ),
        kinds=minimax_m3_kinds,
        norm="head",
    ),
    body=Body(
        mlp=Mlp(width="dense_intermediate_size"),
        experts=replace(
            SAME_WIDTH,
            layers=typed(flagged_layers("moe_layer_freq")),
            shared=1,
            shared_width="shared_intermediate_size",
        ),
    ),
    feed_forward=BLOCK_SPARSE,
    tensors=HYBRID_NAMES,
    gguf=(
        Gguf(
            architecture="minimax-m3",
            indexer=Indexer(owners=after_dense_blocks, keeps_values=True),
        ),
    ),
)
ARCHITECTURES = (
    MINIMAX,
    # MiniMax-Text-01 and MiniMax-M1 by the code that is published with them.
    MINIMAX.relative("minimax_text_01", "minimax_m1", config={"read_as": "minimax"}),
    Architecture(
        types=("minimax_m2",),
        attention=AttentionShape(norm="heads"),
        body=Body(experts=SAME_WIDTH, named=True),
        feed_forward=BLOCK_SPARSE,
        rotary="halves",
    ),
    MULTIMODAL.relative(
        "minimax_m3_vl",
        config={"tied": either_says},
        body=fixed_tower(MINIMAX_M3_TOWER, projector=minimax_m3_projector),
    ),
    MINIMAX_M3,
    # Its language model alone, as engines convert it.
    MINIMAX_M3.relative("minimax_m3", config={"read_as": "minimax_m3_vl_text"}),
)
