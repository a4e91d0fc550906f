"""What is said of a start that failed, as a value."""

from collections.abc import Iterator
from dataclasses import dataclass

from .figures import HALF_STEP
from .ground import Remedy
from .start import Start

_GIB = 2**30


@dataclass(frozen=True, kw_only=True, slots=True)
class Share:
    """A term of the rank's memory; `source` is `logged` or `estimate`."""

    term: str
    bytes: int
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """`cause` is the whole in a sentence. `too_large` names the term; bytes are those of a rank,
    `reckoned_bytes` what is needed by our rules where the log says it too.
    `largest_context` is ours, `logged_context` the engine's own estimate. Any is None where nothing
    tells it."""

    kind: str
    cause: str
    needed_bytes: int | None = None
    reckoned_bytes: int | None = None
    available_bytes: int | None = None
    too_large: str | None = None
    largest_context: int | None = None
    logged_context: int | None = None
    shares: tuple[Share, ...] = ()
    remedies: tuple[Remedy, ...] = ()
    advice: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        return {
            "failure": self.kind,
            "cause": self.cause,
            "needed_bytes": self.needed_bytes,
            "reckoned_bytes": self.reckoned_bytes,
            "available_bytes": self.available_bytes,
            "too_large": self.too_large,
            "largest_context": self.largest_context,
            "logged_context": self.logged_context,
            "shares": [{"term": n.term, "bytes": n.bytes, "source": n.source} for n in self.shares],
            "changes": [remedy.document() for remedy in self.remedies],
            "advice": list(self.advice),
        }

    @property
    def needed_agrees(self) -> bool | None:
        """Whether our figure rounds to the log's; None without both."""
        if self.needed_bytes is None or self.reckoned_bytes is None:
            return None
        return abs(self.needed_bytes - self.reckoned_bytes) <= round(HALF_STEP * _GIB)

    def rows(self, start: Start | None) -> Iterator[dict[str, object]]:
        """The same as figures: of a change, `logged` is what the start had and `predicted` what
        would do."""
        request = start.request if start else None
        advice = "; ".join(self.advice)
        yield _row("failure", None, None, False, self.cause + (f"; {advice}" if advice else ""))
        if self.needed_bytes is not None:
            agrees = self.needed_agrees
            why = self.too_large or ""
            yield _row("needed_bytes", self.needed_bytes, self.reckoned_bytes, agrees, why)
        if self.available_bytes is not None:
            yield _row("left_bytes", self.available_bytes, None, None, "what there was of it")
        if self.largest_context or self.logged_context:
            both = self.logged_context is not None and self.largest_context is not None
            agrees = self.logged_context == self.largest_context if both else None
            why = "the longest request that fits"
            yield _row("largest_context", self.logged_context, self.largest_context, agrees, why)
        for remedy in self.remedies:
            had = getattr(request, remedy.change, None)
            why = f"{remedy.text}: {remedy.command}" if remedy.command else remedy.text
            yield _row(f"change_{remedy.change.replace(' ', '_')}", had, remedy.value, None, why)


def _row(
    figure: str, logged: object, predicted: object, agrees: bool | None, why: str
) -> dict[str, object]:
    """An object of JSON with the keys of `Figure.document`."""
    values = {"figure": figure, "logged": logged, "predicted": predicted}
    return {**values, "low": None, "high": None, "agrees": agrees, "why": why}
