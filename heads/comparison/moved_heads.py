"""Where a conversion has put each query head, as the conversion.json beside its output says."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.convert.attention_map.attention_tensors import Where
from headcount.convert.plan.heads import Heads
from headcount.convert.plan.side_files import RECORD
from headcount.convert.rewrite.layer import attention_key
from headcount.convert.verification.recorded import damaged
from headcount.model import limits
from headcount.sources.json_file import read_json

# For each place the number of the head that stands there, in the model that it comes from; None for
# padding, which is no head of that model.
Origins = tuple[int | None, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class MovedHeads:
    """What a conversion did to query heads: those of its source by their new places, of each
    attention that it changed, and the query and K/V heads that its source had there. `source` is
    the fingerprint of that model, `source_name` what it was called."""

    source: str
    source_name: str
    origins: Mapping[Where, Origins]
    before: Mapping[Where, tuple[int, int]]

    @property
    def is_moved(self) -> bool:
        """Whether any head stands at another place than before."""
        return any(one != tuple(range(len(one))) for one in self.origins.values())


def read_moved_heads(folder: Path) -> MovedHeads | None:
    """What the record of a conversion in `folder` says; None where there is none. Raises
    HeadcountError for one that is not as a conversion writes it."""
    if not (folder / RECORD).is_file():
        return None
    record = read_json(folder / RECORD, limits.RECORD_BYTES)
    try:
        source, layers = record["source"], record["layers"]
        moved = [one for layer in layers for one in _attentions(layer)]
        return MovedHeads(
            source=str(source["fingerprint"]),
            source_name=str(source["name"]),
            origins={where: origins_of(heads, order) for where, heads, order in moved},
            before={where: (own.num_attention_heads, own.before) for where, own, _ in moved},
        )
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise damaged(folder, "layers") from error


def _attentions(layer: Mapping[str, Any]) -> Iterator[tuple[Where, Heads, Sequence[int]]]:
    """The attentions of a layer of the record: their heads, and the new order of K/V heads."""
    pruned, counts = layer["pruned_attention_heads"], layer["num_key_value_heads"]
    query_heads = layer["num_attention_heads"]
    if not {*pruned} < {*range(query_heads)} or min(counts.values()) < 1:
        raise ValueError("there are no such heads")
    heads = Heads(
        num_attention_heads=query_heads,
        before=counts["before"],
        after=counts["after"],
        head_dim=layer["head_dim"],
        query_heads=layer["padded_attention_heads"],
        kept=tuple(head for head in range(query_heads) if head not in pruned) if pruned else None,
    )
    rewritten = layer.get("rewritten") or {}
    for cross in (False, True):
        merged = rewritten.get(attention_key(cross), {})
        if merged or not cross:
            yield (layer["index"], cross), heads, merged.get("order", ())


def origins_of(heads: Heads, order: Sequence[int] = ()) -> Origins:
    """The query head of the source at each place, where K/V heads that stay were put into `order`
    (none: as they were) before `heads` says what becomes of them. ValueError: no such order."""
    stay = heads.staying
    places = range(len(stay.key_value))
    if order and sorted(order) != list(places):
        raise ValueError(f"order {order} does not hold each of {len(places)} K/V heads once")
    size = stay.group_size
    moved = [stay.query[head * size + i] for head in order or places for i in range(size)]
    at = dict(zip(stay.query, moved, strict=True))
    return tuple(None if head is None else at[head] for head in heads.query_slots)
