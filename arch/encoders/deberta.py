"""DeBERTa: attention that also scores relative positions, with projections of their own."""

from dataclasses import replace

from ..architecture import Architecture
from ..attention.shared import ENCODER_MHA
from ..body.body import Body, Layers, no_head
from ..body.masked_lm import masked_lm_head
from ..config_view import ConfigView
from ..tensors.names import TensorNames, under
from .bert import UNPOOLED_BODY


def deberta_positions(view: ConfigView, heads: int, head_dim: int) -> int:
    """Projections of relative positions: without bias to keys, with one to queries."""
    if not view.flag("relative_attention"):
        return 0
    hidden, kinds = view.integer("hidden_size"), _position_kinds(view)
    return hidden * hidden * ("c2p" in kinds) + hidden * (hidden + 1) * ("p2c" in kinds)


def deberta_v2_positions(view: ConfigView, heads: int, head_dim: int) -> int:
    """The same with a bias each, unless positions share the projections of the content."""
    if not view.flag("relative_attention") or view.flag("share_att_key"):
        return 0
    hidden, kinds = view.integer("hidden_size"), _position_kinds(view)
    return hidden * (hidden + 1) * (("c2p" in kinds) + ("p2c" in kinds))


def _position_kinds(view: ConfigView) -> tuple[str, ...]:
    """`pos_att_type`: a list, or a string such as `c2p|p2c`."""
    given = view.get("pos_att_type")
    if isinstance(given, str):
        return tuple(word.strip() for word in given.lower().split("|"))
    return view.strings("pos_att_type") or ()


def deberta_head(body: Body, view: ConfigView, tied: bool) -> int:
    """BERT's, or without `legacy` one whose matrix is always the embedding."""
    return masked_lm_head(body, view, tied or not view.flag("legacy", absent=True))


def deberta_embeddings(view: ConfigView, layers: Layers) -> int:
    """Positions and token types where the config has them, and a table of relative positions."""
    hidden = view.integer("hidden_size")
    biased = view.flag("position_biased_input", absent=True)
    rows = view.integer("max_position_embeddings") if biased else 0
    rows += view.optional("type_vocab_size", minimum=0) or 0
    if view.flag("relative_attention"):
        rows += 2 * _relative_distance(view)
    return rows * hidden


def deberta_v2_embeddings(view: ConfigView, layers: Layers) -> int:
    """The same; buckets may bound the table, which a norm may follow, and a convolution."""
    hidden, rows = view.integer("hidden_size"), 0
    if view.flag("relative_attention"):
        buckets = view.optional("position_buckets", minimum=-1) or -1
        rows = 2 * (buckets - _relative_distance(view)) if buckets > 0 else 0
    norms = view.get("norm_rel_ebd")
    kernel = view.optional("conv_kernel_size", minimum=0) or 0
    convolution = hidden * (hidden * kernel + 1) + 2 * hidden if kernel else 0
    norm = 2 * hidden if view.flag("relative_attention") and norms == "layer_norm" else 0
    return deberta_embeddings(view, layers) + rows * hidden + norm + convolution


def _relative_distance(view: ConfigView) -> int:
    limit = view.optional("max_relative_positions", minimum=-1)
    if limit is None or limit < 1:
        limit = view.integer("max_position_embeddings")
    return limit


DEBERTA_NAMES = TensorNames(
    modules=under("attention.self", qkv="in_proj")
    | {"attention.self.pos_proj": "other", "attention.self.pos_q_proj": "other"}
    | {"attention.output.dense": "o"}
    | {"attention.self.q_bias": "q", "attention.self.v_bias": "v"}
    | {"attention.output.LayerNorm": ""}
)
DEBERTA_V2_NAMES = TensorNames(
    modules=under("attention.self", q="query_proj", k="key_proj", v="value_proj")
    | {"attention.self.pos_key_proj": "other", "attention.self.pos_query_proj": "other"}
    | {"attention.output.dense": "o", "attention.output.LayerNorm": ""}
)

DEBERTA_BODY = replace(
    UNPOOLED_BODY,
    positions=(),
    token_types=None,
    more=deberta_embeddings,
    classes={"ForMaskedLM": deberta_head, "Model": no_head},
)

DEBERTA_V2 = Architecture(
    types=("deberta-v2",),
    attention=replace(ENCODER_MHA, other=deberta_v2_positions),
    tensors=DEBERTA_V2_NAMES,
    body=replace(DEBERTA_BODY, more=deberta_v2_embeddings),
)

ARCHITECTURES = (
    Architecture(
        types=("deberta",),
        attention=replace(ENCODER_MHA, k_bias=False, other=deberta_positions),
        tensors=DEBERTA_NAMES,
        body=DEBERTA_BODY,
    ),
    DEBERTA_V2,
    DEBERTA_V2.relative("sew-d", body=None),
)
