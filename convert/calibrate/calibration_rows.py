"""What a conversion is fitted to, whatever its rows are made of."""

from dataclasses import dataclass

# One batch in so many is held out: nothing is fitted to it, and no step may be worse on it.
HELD_OUT = 8
LEAST_BATCHES = 4


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationRows:
    """`batches` are equal runs of rows, of which `held` are held out. They were cut from the
    `found` first tokens, or rows from all over, of a text. `white`: the share of white inputs that
    is added to moments, where tokens are not like those that will be read."""

    batches: tuple[slice, ...]
    held: tuple[slice, ...]
    sha256: str
    found: int
    white: float = 0.0

    @property
    def fitted(self) -> tuple[slice, ...]:
        return tuple(batch for batch in self.batches if batch not in self.held)
