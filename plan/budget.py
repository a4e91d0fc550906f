"""What a rank may take of a device, and the terms that are taken off for other than the cache."""

from typing import NamedTuple, Protocol


class Term(NamedTuple):
    """One addend: `bytes` of one rank, `error_bytes` more or less. `formula` has its numbers in it;
    `source` says where the constant of an estimate comes from."""

    key: str
    title: str
    bytes: int
    formula: str
    source: str = ""
    error_bytes: int = 0

    def document(self) -> dict[str, object]:
        return {
            "key": self.key,
            "bytes": self.bytes,
            "error_bytes": self.error_bytes,
            "formula": self.formula,
            "source": self.source,
        }


# Keys of what an engine loads: its log has their sum as the weights.
LOADED = frozenset({"weights", "draft", "adapters"})


class Growing(Protocol):
    """Terms that grow with what is asked for, as of an engine that reserves nothing ahead."""

    def total_bytes(self, context: int, batch_size: int) -> int:
        """The sum of `terms`."""

    def terms(self, context: int, batch_size: int) -> tuple[Term, ...]:
        """Each term at so many sequences of `context` tokens."""


class Loading(NamedTuple):
    """What lies on a rank's device at most while its weights load, and the `room` there is."""

    peak: Term
    room: int

    @property
    def free_bytes(self) -> int:
        """What is left of it; negative where loading fails."""
        return self.room - self.peak.bytes

    def moved(self, sign: int) -> "Loading":
        """With its error in favour of the plan, or (-1) against it."""
        return self._replace(room=self.room + sign * self.peak.error_bytes)


class Budget(NamedTuple):
    """Of one rank: `allowed` is None without a device; `fixed` are the weights first, then what is
    taken whatever is asked for. `loading` is None where no more lies there while they load."""

    allowed: Term | None
    fixed: tuple[Term, ...]
    growing: Growing | None = None
    loading: Loading | None = None

    def taken(self, context: int, batch_size: int) -> tuple[Term, ...]:
        """The weights first."""
        growing = self.growing.terms(context, batch_size) if self.growing else ()
        return (*self.fixed, *growing)

    def available_bytes(self, context: int, batch_size: int) -> int | None:
        """What is left for the cache, negative where nothing is; None without a device."""
        if self.fixed_free is None:
            return None
        growing = self.growing.total_bytes(context, batch_size) if self.growing else 0
        return self.fixed_free - growing

    @property
    def fixed_free(self) -> int | None:
        """What is left of the device by the fixed terms; None without one."""
        if self.allowed is None:
            return None
        return self.allowed.bytes - sum(term.bytes for term in self.fixed)

    @property
    def loaded(self) -> tuple[Term, ...]:
        """The weights, and those of drafts and adapters."""
        return tuple(term for term in self.fixed if term.key in LOADED)

    @property
    def error_bytes(self) -> int:
        """How far off what is left may be if all estimates err the same way."""
        own = self.allowed.error_bytes if self.allowed else 0
        return own + sum(term.error_bytes for term in self.fixed)

    def moved(self, sign: int) -> "Budget":
        """With all estimates off by their error in the plan's favour, or (-1) against it; itself
        without a device."""
        if self.allowed is None:
            return self
        size = self.allowed.bytes + sign * self.error_bytes
        loading = self.loading and self.loading.moved(sign)
        return self._replace(allowed=self.allowed._replace(bytes=size), loading=loading)
