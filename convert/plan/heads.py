"""How many heads each attention has before and after a conversion."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from headcount.model.mixers import Attention

from ..attention_map.attention_tensors import Where
from ..attention_map.mapping import owner_of


@dataclass(frozen=True, kw_only=True, slots=True)
class StayingHeads:
    """The query heads of one attention that stay, and the K/V heads that they read, by their
    numbers in the source; as many of each."""

    query: tuple[int, ...]
    key_value: tuple[int, ...]

    @property
    def group_size(self) -> int:
        """Query heads per K/V head."""
        return len(self.query) // len(self.key_value)


def staying_heads(
    query_heads: int, key_value_heads: int, kept: Iterable[int] | None
) -> StayingHeads:
    """Those that read and are read where only the query heads `kept` stay, None: all of them."""
    query = tuple(range(query_heads)) if kept is None else tuple(kept)
    group_size = query_heads // key_value_heads
    return StayingHeads(
        query=query, key_value=tuple(dict.fromkeys(head // group_size for head in query))
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """The heads of one attention: query heads, and K/V heads before and after.

    Of the query heads only `kept` stay (None: all), as many of each K/V head that any of them
    reads; the other K/V heads go. Runs of neighbours among those that stay become one each. Where
    `after` divides them all runs are of `members` heads. Where it does not, the first runs have one
    member more, and each K/V head gets as many query heads as the largest run needs: what is
    missing is padding, which adds nothing.
    """

    num_attention_heads: int
    before: int
    after: int
    head_dim: int
    v_head_dim: int | None = None  # None: as head_dim
    query_heads: int | None = None  # after, where the class wants more padding than runs need
    kept: tuple[int, ...] | None = None

    @property
    def value_dim(self) -> int:
        return self.v_head_dim or self.head_dim

    @property
    def staying(self) -> StayingHeads:
        """The heads that are not pruned."""
        return staying_heads(self.num_attention_heads, self.before, self.kept)

    @property
    def subset(self) -> StayingHeads | None:
        """The same; None where none is pruned."""
        return self.staying if self.is_pruned else None

    @property
    def members(self) -> int:
        """How many K/V heads become one: those that stay, from j*members on, become head j."""
        return len(self.staying.key_value) // self.after

    @property
    def runs(self) -> tuple[int, ...]:
        """How many K/V heads become each new one, the first run first."""
        extra = len(self.staying.key_value) % self.after
        return tuple(self.members + (j < extra) for j in range(self.after))

    @property
    def is_changed(self) -> bool:
        return self.before != self.after or self.is_pruned

    @property
    def is_pruned(self) -> bool:
        return self.kept is not None

    @property
    def is_padded(self) -> bool:
        return len(self.staying.key_value) % self.after > 0

    @property
    def is_merged(self) -> bool:
        """Whether K/V heads that stay become fewer."""
        return len(self.staying.key_value) != self.after

    @property
    def is_renumbered(self) -> bool:
        """Whether query heads stand at other places after."""
        return self.is_padded or self.is_pruned

    @property
    def padded_heads(self) -> int:
        """Query heads after: those that stay, unless runs are uneven."""
        if self.query_heads is not None:
            return self.query_heads
        return self.after * max(self.runs) * self.staying.group_size

    @property
    def query_slots(self) -> tuple[int | None, ...]:
        """The query head of before that stands at each place after; None for padding."""
        stay = self.staying
        width = self.padded_heads // self.after
        starts = accumulate(self.runs, initial=0)
        return tuple(
            stay.query[start * stay.group_size + i] if i < run * stay.group_size else None
            for start, run in zip(starts, self.runs, strict=False)
            for i in range(width)
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadsByLayer:
    """The heads of every attention that has K/V heads of its own, by layer and kind. `readers` maps
    a layer that reads another's cache to that one: files may hold k and v that it does not use."""

    layers: Mapping[Where, Heads]
    readers: Mapping[int, int] = field(default_factory=dict)

    def of(self, index: int, *, cross: bool = False) -> Heads | None:
        """The heads of one attention; None for a layer without K/V heads. See `owner_of`."""
        owner = owner_of((index, cross), self.layers, self.readers)
        return None if owner is None else self.layers[owner]

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader of the plan should know of heads that are not what they were."""
        padded = [own for own in self.layers.values() if own.is_padded]
        if not padded:
            return ()
        own = padded[0]
        stay = own.staying
        return (
            f"{own.after} does not divide {len(stay.key_value)}: query heads grow from"
            f" {len(stay.query)} to {own.padded_heads}; the new ones are zeros, which add nothing",
        )


def heads_of(mixer: Attention, after: int, kept: tuple[int, ...] | None = None) -> Heads:
    """The heads of one attention that gets `after` K/V heads, and of whose query heads only `kept`
    stay."""
    return Heads(
        num_attention_heads=mixer.num_attention_heads,
        before=mixer.num_key_value_heads,
        after=after,
        head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
        kept=kept,
    )
