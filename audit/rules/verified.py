"""H8xx: an audit's counts against what transformers builds, which is done in running/built."""

from collections.abc import Iterator
from typing import NamedTuple

from headcount.model.units import format_layers

from .rule import Sighting, rule


class Unlike(NamedTuple):
    """A count that differs, the same way in each of `layers` of a stack (none: in the whole model).

    `what` is attention, total or cache; `detail` a part (`q`), a kind of mixer, or a length.
    """

    what: str
    detail: str
    stack: str
    layers: tuple[int, ...]
    audit: int
    built: int

    @property
    def where(self) -> str:
        plural = "" if len(self.layers) == 1 else "s"
        return (
            f"{self.stack} layer{plural} {format_layers(self.layers)}"
            if self.layers
            else "the model"
        )


class Compared(NamedTuple):
    """One sum over the model, as both count it."""

    what: str
    audit: int
    built: int


class VerifyFacts(NamedTuple):
    """What was compared with the model that transformers builds as `built_as`, what differs, and
    what was not compared, with the reason. `lengths` of the cache are in tokens."""

    built_as: str
    compared: tuple[Compared, ...]
    lengths: tuple[int, ...]
    unlike: tuple[Unlike, ...]
    left_out: tuple[tuple[str, str], ...]


_HINT = "trust transformers' count, and report the config as a fault of headcount"


@rule("H801", "attention-not-as-built", "error", _HINT)
def attention_as_built(facts: VerifyFacts) -> Iterator[Sighting]:
    """Layers or parameters of the mixers are others than transformers builds."""
    yield from _seen(facts, "attention")


@rule("H802", "total-not-as-built", "error", _HINT)
def total_as_built(facts: VerifyFacts) -> Iterator[Sighting]:
    """The model has another number of parameters than transformers builds."""
    yield from _seen(facts, "total")


@rule("H803", "cache-not-as-built", "error", _HINT)
def cache_as_built(facts: VerifyFacts) -> Iterator[Sighting]:
    """Layers keep another number of elements than transformers' default cache holds."""
    yield from _seen(facts, "cache")


def _seen(facts: VerifyFacts, what: str) -> Iterator[Sighting]:
    for one in facts.unlike:
        if one.what == what:
            counts = f"audit counts {one.audit:,}, {facts.built_as} has {one.built:,}"
            yield Sighting(one.where, f"{one.detail}: {counts}")


RULES = (attention_as_built, total_as_built, cache_as_built)
