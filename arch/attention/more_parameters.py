"""Parameters of an attention beside its projections and q/k norms: (view, query heads, head_dim) ->
a count."""

from collections.abc import Callable

from ..config_view import ConfigView


def sink_per_head(view: ConfigView, heads: int, head_dim: int) -> int:
    """Attention sinks: one logit per query head."""
    return heads


def output_gate(view: ConfigView, heads: int, head_dim: int) -> int:
    """A gate on each element of what o_proj reads: a projection from the hidden size."""
    return view.integer("hidden_size") * heads * head_dim


def output_gate_and_head_bias(view: ConfigView, heads: int, head_dim: int) -> int:
    """The same with a bias per head."""
    return output_gate(view, heads, head_dim) + heads


def second_query_key_value(view: ConfigView, heads: int, head_dim: int) -> int:
    """A second q, k and v for tokens that attend globally (Longformer, LED's encoder)."""
    hidden = view.integer("hidden_size")
    return 3 * hidden * (hidden + 1)


def value_convolution(key: str) -> Callable[[ConfigView, int, int], int]:
    """A depthwise convolution over the values with one kernel per head, as long as `key` says
    (Nyströmformer, YOSO); none without it."""
    return lambda view, heads, head_dim: heads * (view.optional(key) or 0)
