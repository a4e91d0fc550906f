"""How many query heads of an attention go, and what can be left of it.

Query heads of one K/V head stay in equal numbers, since a query head finds its K/V head by its own
number; or none of them stays, and the K/V head goes, too.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from .divisors import listed
from .errors import HeadcountError
from .mixers import Attention

# So many heads of each attention, or such a share of them.
PrunedShare = int | Fraction
_SHARE = re.compile(
    r"(?:0?\.[0-9]{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?%|[0-9]{1,5}/[0-9]{1,5})", re.ASCII
)


def parse_pruned_share(text: str) -> PrunedShare | None:
    """`2`, or a share: `1/4`, `0.25`, `25%`; None for text of another kind. Raises HeadcountError
    for a share that is none."""
    if text.isascii() and text.isdecimal() and len(text) <= 5:
        return int(text)
    if not _SHARE.fullmatch(text):
        return None
    number, percent, _ = text.partition("%")
    if set(text.partition("/")[2]) == {"0"}:
        raise HeadcountError(f"{text!r} is no share")
    share = Fraction(number) / (100 if percent else 1)
    if not 0 < share < 1:
        raise HeadcountError(f"{text!r} of the query heads: a share lies between 0 and 1")
    return share


def shapes_left(mixer: Attention, wanted: PrunedShare, where: str) -> tuple[tuple[int, int], ...]:
    """The (K/V heads, query heads of each) that an attention may be left with when `wanted` of its
    query heads go, the fewest K/V heads first. Raises HeadcountError for a number that would leave
    K/V heads with different numbers of them; `where` begins its text."""
    heads = mixer.num_attention_heads
    count = wanted if isinstance(wanted, int) else wanted * heads
    possible = tuple(n for n in range(1, heads) if any(_shapes(mixer, heads - n)))
    if count in possible:
        return tuple(_shapes(mixer, heads - int(count)))
    exact = isinstance(wanted, int) or count.denominator == 1
    amount = str(count) if exact else f"{wanted} ({float(count):g})"
    raise HeadcountError(
        f"{where} has {heads} query heads of {mixer.num_key_value_heads} K/V heads, and {amount} of"
        " them cannot go: as many have to stay of each K/V head that stays; --prune-heads can be"
        f" {listed(possible) if possible else 'nothing: there is only one'}"
    )


def _shapes(mixer: Attention, heads: int) -> Iterator[tuple[int, int]]:
    for key_value in range(1, mixer.num_key_value_heads + 1):
        each, rest = divmod(heads, key_value)
        if not rest and 1 <= each <= mixer.group_size:
            yield key_value, each
