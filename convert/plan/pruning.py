"""Which query heads go: as the user says it, and as a plan needs it."""

import re
from collections import Counter
from collections.abc import Mapping

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention
from headcount.model.pruned_heads import PrunedShare, parse_pruned_share, shapes_left

from ..attention_map.attention_tensors import Where
from .errors import CannotConvertError, HeadCountError
from .heads import staying_heads
from .request import HeadsOfLayers, KeyValueHeads, PrunedHeads
from .source import ConversionSource

# The query heads of each attention that stay, in their order; nothing where none is pruned.
KeptHeads = Mapping[Where, tuple[int, ...]]
_LIST = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?:([0-9]{1,5}(?:\+[0-9]{1,5})*)", re.ASCII)


def parse_pruned_heads(text: str) -> PrunedHeads:
    """`2` heads of each layer, a share of them (`1/4`, `0.25`, `25%`), or heads by their numbers:
    `0-3:1+5,4:0+2` for heads 1 and 5 of layers 0 to 3, 0 and 2 of layer 4. Raises
    HeadcountError."""
    share = parse_pruned_share(text)
    if share is not None:
        return share
    found: dict[int, tuple[int, ...]] = {}
    for item in text.split(","):
        match = _LIST.fullmatch(item.strip())
        if match is None:
            raise HeadcountError(
                f"{text!r} names no query heads: write 2 or 1/4 for so many of each layer, or"
                " 0-3:1+5,4:0+2 for heads 1 and 5 of layers 0 to 3, 0 and 2 of layer 4"
            )
        first, last = int(match[1]), int(match[2] or match[1])
        heads = tuple(sorted({int(head) for head in match[3].split("+")}))
        if last < first or found.keys() & range(first, last + 1):
            raise HeadcountError(f"{text!r}: layers {item.strip()} are reversed or named twice")
        found |= dict.fromkeys(range(first, last + 1), heads)
    return found


def check_pruned(source: ConversionSource) -> None:
    """Raises CannotConvertError for attentions of which it is not known what becomes of them
    without some of their heads."""
    found = source.attention_map
    reasons = {
        "cross-attention": any(cross for _, cross in found.mixers),
        "layers that read another's keys and values": bool(found.readers),
        "layers that its config does not count": bool(found.more),
        "heads of which one half is subtracted": source.architecture.conversion.even_only,
    }
    for what, is_there in reasons.items():
        if is_there:
            raise CannotConvertError(
                f"{source.label}: has {what}, so that --prune-heads cannot take query heads away"
            )


def shapes_to_have(
    source: ConversionSource, wanted: PrunedShare
) -> dict[int, tuple[tuple[int, int], ...]]:
    """The (K/V heads, query heads of each) that each layer may be left with. Raises HeadcountError
    for a number that would leave K/V heads with different numbers of query heads."""
    return {
        index: shapes_left(mixer, wanted, f"{source.label}: layer {index}")
        for (index, _), mixer in source.attention_map.mixers.items()
    }


def kept_heads(source: ConversionSource, pruned: HeadsOfLayers) -> dict[Where, tuple[int, ...]]:
    """The query heads that stay of every attention that loses any: those of `pruned`, by layer.
    Raises HeadCountError for heads that are not there, or that leave K/V heads with different
    numbers of them."""
    mixers = source.attention_map.mixers
    strangers = pruned.keys() - {index for index, _ in mixers}
    if strangers:
        raise HeadCountError(f"{source.label}: layer {min(strangers)} has no heads of its own")
    return {
        (index, cross): _kept(f"{source.label}: layer {index}", mixer, pruned[index])
        for (index, cross), mixer in mixers.items()
        if index in pruned
    }


def _kept(where: str, mixer: Attention, pruned: tuple[int, ...]) -> tuple[int, ...]:
    heads = mixer.num_attention_heads
    if any(head >= heads for head in pruned):
        raise HeadCountError(f"{where} has {heads} query heads, no head {max(pruned)}")
    kept = tuple(head for head in range(heads) if head not in pruned)
    if not kept:
        raise HeadCountError(f"{where} would lose all of its {heads} query heads")
    read = Counter(head // mixer.group_size for head in kept)
    if len(set(read.values())) > 1:
        (one, most), (other, least) = read.most_common()[0], read.most_common()[-1]
        raise HeadCountError(
            f"{where}: {most} query heads of K/V head {one} would stay and {least} of K/V head"
            f" {other}: as many have to stay of each, or none"
        )
    return kept


def settled_counts(
    source: ConversionSource, wanted: KeyValueHeads | None, kept: KeptHeads
) -> KeyValueHeads:
    """How many K/V heads there will be: as many as are still read, or `wanted`, if that is less; of
    single layers it may not be more. Raises HeadCountError."""
    if not kept:
        assert wanted is not None
        return wanted
    counts = {}
    for where, mixer in source.attention_map.mixers.items():
        heads, shared = mixer.num_attention_heads, mixer.num_key_value_heads
        counts[where[0]] = len(staying_heads(heads, shared, kept.get(where)).key_value)
    if isinstance(wanted, int):
        counts = {index: min(count, wanted) for index, count in counts.items()}
    for index, asked in wanted.items() if isinstance(wanted, Mapping) else ():
        if asked > counts.get(index, asked):
            raise HeadCountError(
                f"{source.label}: pruning leaves layer {index} {counts[index]} K/V heads; {asked}"
                " would be more"
            )
        counts[index] = asked
    same = set(counts.values())
    return same.pop() if len(same) == 1 else counts
