"""Parameters of a second q, k and v beside the first."""

from ..config_view import ConfigView


def second_query_key_value(view: ConfigView, heads: int, head_dim: int) -> int:
    """A second q, k and v for tokens that attend globally (Longformer, LED's encoder)."""
    hidden = view.integer("hidden_size")
    return 3 * hidden * (hidden + 1)
