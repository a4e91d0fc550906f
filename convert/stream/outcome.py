"""What is measured while heads are pooled."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .float_casts import Lost
from .repeated_heads import Repeats


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What was measured while pooling: (layer, part) -> relative error of its weight, layer -> the
    heads that were kept, for methods that choose, the layers of which any number changed, and the
    heads that are copies of others. Of a layer with two attentions the larger error. `lost` is what
    a cast lost of a tensor of the output, by its name; those that lost nothing are left out."""

    errors: dict[tuple[int, str], float] = field(default_factory=dict)
    chosen: dict[int, tuple[int, ...]] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    repeats: Repeats = field(default_factory=Repeats)
    lost: dict[str, Lost] = field(default_factory=dict)

    def since(self, before: "Outcome") -> "Outcome":
        """What `before`, a copy made earlier, does not say."""
        seen = self.repeats.alike
        return Outcome(
            errors={k: e for k, e in self.errors.items() if before.errors.get(k) != e},
            chosen={k: c for k, c in self.chosen.items() if before.chosen.get(k) != c},
            moved=self.moved - before.moved,
            repeats=Repeats(
                alike={k: a for k, a in seen.items() if before.repeats.alike.get(k) != a}
            ),
            lost={n: found for n, found in self.lost.items() if before.lost.get(n) != found},
        )

    def copy(self) -> "Outcome":
        return Outcome(
            errors=dict(self.errors),
            chosen=dict(self.chosen),
            moved=set(self.moved),
            repeats=Repeats(alike=dict(self.repeats.alike)),
            lost=dict(self.lost),
        )

    def add(self, other: "Outcome") -> None:
        for key, error in other.errors.items():
            self.errors[key] = max(error, self.errors.get(key, 0.0))
        self.chosen.update(other.chosen)
        self.moved.update(other.moved)
        for layer, alike in other.repeats.alike.items():
            self.repeats.note(layer, alike)
        self.lost.update(other.lost)

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "errors": [[layer, part, error] for (layer, part), error in self.errors.items()],
            "chosen": [[layer, list(heads)] for layer, heads in self.chosen.items()],
            "moved": sorted(self.moved),
            "alike": [[layer, list(alike)] for layer, alike in self.repeats.alike.items()],
            "lost": [[name, *found] for name, found in self.lost.items()],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Outcome":
        return cls(
            errors={(layer, part): error for layer, part, error in document["errors"]},
            chosen={layer: tuple(heads) for layer, heads in document["chosen"]},
            moved=set(document["moved"]),
            repeats=Repeats(alike={layer: tuple(alike) for layer, alike in document["alike"]}),
            lost={name: Lost(zeros, small) for name, zeros, small in document["lost"]},
        )
