"""What a verification finds."""

from dataclasses import dataclass, field

# Of what has the digest that it was written with, and not the source's values.
SOURCE_CHANGED = "it is as it was written, so that the source is another one now"
CONFIG_CHANGED = "the source's is another one than was converted"
HEADERS_CHANGED = "its headers are others than were converted"


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """`where` is a file or a tensor, `what` how it is not as it should be."""

    where: str
    what: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """The differences, and how many files and tensors were looked at: tensors by the digest that
    they had when they were written, copies against the source, computed ones made of it once more,
    those of which this gave other last bits (`rounded`), and those that only their digest vouches
    for. `notes` say what was not looked at, and why."""

    differences: list[Difference] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_of_another_source(self) -> bool:
        """Whether what was written is as it was, and all that differs is the source's doing."""
        found, doings = self.differences, (SOURCE_CHANGED, CONFIG_CHANGED, HEADERS_CHANGED)
        return bool(found) and all(any(what in one.what for what in doings) for one in found)

    def names(self, where: str) -> bool:
        """Whether there is a difference already."""
        return any(one.where == where for one in self.differences)

    def differs(self, where: str, what: str) -> None:
        self.differences.append(Difference(where=where, what=what))

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] = self.counts.get(what, 0) + number
