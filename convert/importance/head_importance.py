"""What the query heads of a model are worth, and which are worth least."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headcount.model.mixers import Attention

Criterion = Literal["text", "weights"]
# Layer -> what each of its query heads is worth, the first head first.
Scores = Mapping[int, Sequence[float]]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadImportance:
    """`scores` by `criterion`: estimated changes of the loss on a text, in nats a token, with the
    text's digest and how many `tokens` were read of it; or products of weights, of which only the
    order says anything. Four digits: sums differ between processors. Where heads were chosen by
    them, that took so many `rounds`, and `added` is what masking the heads of one round, and of
    two, adds to the loss on that text."""

    criterion: Criterion
    scores: Scores
    sha256: str | None = None
    tokens: int = 0
    rounds: int = 1
    added: Mapping[int, float] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "criterion": self.criterion,
            "sha256": self.sha256,
            "tokens": self.tokens,
            "rounds": self.rounds,
            "added_loss": {str(rounds): loss for rounds, loss in self.added.items()},
            "layers": [
                {"index": index, "scores": list(scores)} for index, scores in self.scores.items()
            ],
        }


def rounded(scores: Mapping[int, Sequence[float]]) -> dict[int, tuple[float, ...]]:
    """To four digits."""
    return {
        index: tuple(float(f"{score:.4g}") for score in of_layer)
        for index, of_layer in scores.items()
    }


def least_important(
    mixers: Mapping[int, Attention], scores: Scores, shapes: Mapping[int, Sequence[tuple[int, int]]]
) -> dict[int, tuple[int, ...]]:
    """The query heads to take from each layer, so that what is lost of all scores together is
    least: layer -> heads.

    `shapes` are the (K/V heads, query heads of each) that a layer may be left with. Layers that
    have the same choice of shapes take the same, since most classes hold one for all.
    """
    alike: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for index, possible in shapes.items():
        alike.setdefault(tuple(possible), []).append(index)
    found: dict[int, tuple[int, ...]] = {}
    for possible, layers in alike.items():

        def lost(shape: tuple[int, int], layers: list[int] = layers) -> float:
            gone = {i: gone_of(mixers[i], scores[i], shape) for i in layers}
            return sum(scores[i][head] for i in layers for head in gone[i])

        best = min(possible, key=lost)
        found |= {index: gone_of(mixers[index], scores[index], best) for index in layers}
    return dict(sorted(found.items()))


def gone_of(mixer: Attention, scores: Sequence[float], shape: tuple[int, int]) -> tuple[int, ...]:
    """The heads that do not stay where (K/V heads, query heads of each) do: of every K/V head the
    best stay, and of these K/V heads those whose best are worth most. Of equals the first stay."""
    count, each = shape
    size = mixer.group_size
    best = [
        sorted(range(j * size, (j + 1) * size), key=lambda head: (-scores[head], head))[:each]
        for j in range(mixer.num_key_value_heads)
    ]
    order = sorted(best, key=lambda heads: (-sum(scores[head] for head in heads), heads))
    kept = {head for heads in order[:count] for head in heads}
    return tuple(head for head in range(mixer.num_attention_heads) if head not in kept)
