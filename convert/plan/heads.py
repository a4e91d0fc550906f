"""How many heads each attention has before and after a conversion."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from headcount.model.mixers import Attention

from ..attention_map.attention_tensors import Where
from ..attention_map.mapping import owner_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Heads:
    """The heads of one attention: query heads, and K/V heads before and after.

    Runs of neighbouring K/V heads become one each. Where `after` divides `before` all runs are of
    `members` heads. Where it does not, the first runs have one member more, and each K/V head gets
    as many query heads as the largest run needs: what is missing is padding, which adds nothing.
    """

    num_attention_heads: int
    before: int
    after: int
    head_dim: int
    v_head_dim: int | None = None  # None: as head_dim
    query_heads: int | None = None  # after, where the class wants more padding than runs need

    @property
    def value_dim(self) -> int:
        return self.v_head_dim or self.head_dim

    @property
    def members(self) -> int:
        """How many K/V heads become one: [j*members, (j+1)*members) become head j."""
        return self.before // self.after

    @property
    def runs(self) -> tuple[int, ...]:
        """How many K/V heads become each new one, the first run first."""
        extra = self.before % self.after
        return tuple(self.members + (j < extra) for j in range(self.after))

    @property
    def is_changed(self) -> bool:
        return self.before != self.after

    @property
    def is_padded(self) -> bool:
        return self.before % self.after > 0

    @property
    def padded_heads(self) -> int:
        """Query heads after: those of before, unless runs are uneven."""
        if self.query_heads is not None:
            return self.query_heads
        group_size = self.num_attention_heads // self.before
        return self.after * max(self.runs) * group_size

    @property
    def query_slots(self) -> tuple[int | None, ...]:
        """The query head of before that stands at each place after; None for padding."""
        group_size = self.num_attention_heads // self.before
        width = self.padded_heads // self.after
        starts = accumulate(self.runs, initial=0)
        return tuple(
            start * group_size + i if i < run * group_size else None
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
        return (
            f"{own.after} does not divide {own.before}: query heads grow from"
            f" {own.num_attention_heads} to {own.padded_heads}; the new ones are zeros, which add"
            " nothing",
        )


def heads_of(mixer: Attention, after: int) -> Heads:
    """The heads of one attention that gets `after` K/V heads."""
    return Heads(
        num_attention_heads=mixer.num_attention_heads,
        before=mixer.num_key_value_heads,
        after=after,
        head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
    )
