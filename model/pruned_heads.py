"""How many query heads of an attention go, and what can be left of it.

Query heads of one K/V head stay in equal numbers, since a query head finds its K/V head by its own
number; or none of them stays, and the K/V head goes, too.
"""

import re
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
    possible = [heads - stay for stay in shapes_by_count(mixer) if stay < heads]
    if count in possible:
        return shapes_by_count(mixer)[heads - int(count)]
    exact = isinstance(wanted, int) or count.denominator == 1
    amount = str(count) if exact else f"{wanted} ({float(count):g})"
    raise HeadcountError(
        f"{where} has {heads} query heads of {mixer.num_key_value_heads} K/V heads, and {amount} of"
        " them cannot go: as many have to stay of each K/V head that stays; --prune-heads can be"
        f" {listed(tuple(possible)) if possible else 'nothing: there is only one'}"
    )


def shapes_by_count(mixer: Attention) -> dict[int, tuple[tuple[int, int], ...]]:
    """Each number of query heads that may stay of an attention, the most first -> the (K/V heads,
    query heads of each) that it can be, the fewest K/V heads first."""
    found: dict[int, list[tuple[int, int]]] = {}
    for key_value in range(1, mixer.num_key_value_heads + 1):
        for each in range(1, mixer.group_size + 1):
            found.setdefault(key_value * each, []).append((key_value, each))
    return {count: tuple(found[count]) for count in sorted(found, reverse=True)}
