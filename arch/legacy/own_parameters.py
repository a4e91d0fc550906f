"""Parameters that an attention has beside its projections and q/k norms: `other` of a row.

Each maps (view, query heads, head_dim) to a count.
"""

from collections.abc import Callable

from ..attention.gates import (
    output_gate as output_gate,
)
from ..attention.gates import (
    output_gate_and_head_bias as output_gate_and_head_bias,
)
from ..config_view import ConfigView


def vectors_of_head_dim(count: int) -> Callable[[ConfigView, int, int], int]:
    """`count` vectors of head_dim: the lambdas of differential attention (arXiv 2410.05258)."""

    def parameters(view: ConfigView, heads: int, head_dim: int) -> int:
        return count * head_dim

    return parameters


def luke_queries(view: ConfigView, heads: int, head_dim: int) -> int:
    """LUKE: queries of their own from words to entities, entities to words and to entities."""
    hidden = view.integer("hidden_size")
    return 3 * hidden * (hidden + 1) if view.flag("use_entity_aware_attention") else 0


def nystrom_convolution(view: ConfigView, heads: int, head_dim: int) -> int:
    """Nyströmformer: a depthwise convolution over the values, one kernel per head."""
    return heads * (view.optional("conv_kernel_size") or 0)


def second_query_key_value(view: ConfigView, heads: int, head_dim: int) -> int:
    """A second q, k and v for tokens that attend globally (Longformer, LED's encoder)."""
    hidden = view.integer("hidden_size")
    return 3 * hidden * (hidden + 1)


def deberta(view: ConfigView, heads: int, head_dim: int) -> int:
    """Projections of relative positions: without bias to keys, with one to queries."""
    if not view.flag("relative_attention"):
        return 0
    hidden, kinds = view.integer("hidden_size"), _position_kinds(view)
    return hidden * hidden * ("c2p" in kinds) + hidden * (hidden + 1) * ("p2c" in kinds)


def deberta_v2(view: ConfigView, heads: int, head_dim: int) -> int:
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
