"""Parameters of gates on an attention's output: (view, query heads, head_dim) -> a count."""

from ..config_view import ConfigView


def output_gate(view: ConfigView, heads: int, head_dim: int) -> int:
    """A gate on each element of what o_proj reads: a projection from the hidden size."""
    return view.integer("hidden_size") * heads * head_dim


def output_gate_and_head_bias(view: ConfigView, heads: int, head_dim: int) -> int:
    """The same with a bias per head (Beam)."""
    return output_gate(view, heads, head_dim) + heads
