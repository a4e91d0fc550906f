"""One K/V head for all query heads, or one for each, as a flag says."""

from ..config_view import ConfigView


def multi_query_heads(view: ConfigView, heads: int) -> int:
    """One K/V head if `multi_query`, else one per query head (BigCode, old Falcon)."""
    count = 1 if view.flag("multi_query") else heads
    return int(view.note("num_key_value_heads", count, "derived: multi_query"))
