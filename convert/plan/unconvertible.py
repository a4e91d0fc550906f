"""Types whose attention has K/V heads that cannot be merged exactly, with the reason.

A type that no row of the family table describes, that keeps no K/V heads, or whose class has as
many as query heads, is told apart by the table itself.
"""

from collections.abc import Mapping

# Types that take an even number only: half of the V heads are subtracted from the other half.
EVEN_ONLY = frozenset({"diffllama"})
_CONVOLVED = "its keys and queries are convolved together, so that no head stands by itself"

REASONS: Mapping[str, str] = {
    "doge": "its mask is computed from the values of all K/V heads at once",
    "jetmoe": "it has as many query heads in each expert as K/V heads, so that fewer of one mean"
    " fewer of the other",
    **dict.fromkeys(
        ("inkling2_text", "inkling2_loop_text"),
        "the weights that convolve its keys and values are computed from the input, and are not"
        " merged here",
    ),
    "zaya": _CONVOLVED,
}
