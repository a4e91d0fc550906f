"""Recall of planted pairs: a key with its value far back, then the key alone."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .row_scores import RowScores, score_rows

NEAREST, STEP = 8, 4
PAIRS = 4  # of each distance in a row
_LEAST_ROOM = 8  # tokens: a row has room for pairs to begin in, at the farthest distance


@dataclass(frozen=True, kw_only=True, slots=True)
class PlantedRows:
    """`ids` [rows, tokens]. `asked` are (distance, row, place): at `place` stands a value; its key
    right before it also stood `distance` tokens earlier, with that value behind it."""

    ids: Tensor
    asked: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Recalled:
    """Of values asked for: the share that was ranked first, and the mean loss in nats."""

    accuracy: float
    loss: float


@dataclass(frozen=True, kw_only=True, slots=True)
class RecallAt:
    """Of `pairs` pairs, asked for after `distance` tokens."""

    distance: int
    pairs: int
    model: Recalled
    against: Recalled | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def recall_distances(length: int) -> tuple[int, ...]:
    """8, 32, 128… tokens, and the farthest that leaves an eighth of `length` to begin in."""
    farthest = length - max(length // 8, _LEAST_ROOM)
    distances = []
    distance = NEAREST
    while distance * 2 <= farthest:
        distances.append(distance)
        distance *= STEP
    return (*distances, farthest) if farthest > 2 else ()


def plant_pairs(filler: Tensor, usable: Tensor, *, start: int | None, seed: int) -> PlantedRows:
    """Pairs at every distance in each row of `filler` ([rows, tokens], of a text), behind the token
    `start` if there is one. Keys and values are drawn from `usable` ([n]): different ones for every
    pair, and none that the row has, as far as there are enough."""
    generator = torch.Generator().manual_seed(seed)
    begin = 0 if start is None else 1
    ids = torch.cat([filler.new_full((len(filler), begin), start or 0), filler], dim=1)
    ids = ids[:, : filler.shape[1]].clone()
    asked: list[tuple[int, int, int]] = []
    for row in range(len(ids)):
        drawn = _drawn(usable, ids[row], generator)
        taken = torch.zeros(ids.shape[1], dtype=torch.bool)
        taken[: begin + 1] = True  # BOS, and what may be a sink
        for distance in reversed(recall_distances(ids.shape[1])):
            for _ in range(PAIRS):
                place = _free(taken, distance, generator)
                if place is None or len(drawn) < 2:
                    break
                key, value = drawn.pop(), drawn.pop()
                for at in (place, place + distance):
                    ids[row, at], ids[row, at + 1] = key, value
                    taken[at : at + 2] = True
                asked.append((distance, row, place + distance + 1))
    return PlantedRows(ids=ids, asked=tuple(asked))


def recall(models: Sequence[PreTrainedModel], planted: PlantedRows) -> tuple[RecallAt, ...]:
    """What the model, and then the original if it is there, recalls at every distance."""
    scored = [score_rows(model, planted.ids, what="planted pairs") for model in models]
    return tuple(
        RecallAt(
            distance=distance,
            pairs=sum(own == distance for own, _, _ in planted.asked),
            model=recalled_at(scored[0], planted, distance),
            against=recalled_at(scored[1], planted, distance) if len(scored) > 1 else None,
        )
        for distance in sorted({distance for distance, _, _ in planted.asked})
    )


def recalled_at(scores: RowScores, planted: PlantedRows, distance: int) -> Recalled:
    """Of the pairs that were asked for after `distance` tokens."""
    places = [(row, place - 1) for own, row, place in planted.asked if own == distance]
    rows, columns = torch.tensor(places).T
    return Recalled(
        accuracy=scores.hits[rows, columns].double().mean().item(),
        loss=scores.losses[rows, columns].mean().item(),
    )


def _drawn(usable: Tensor, row: Tensor, generator: torch.Generator) -> list[int]:
    """All of `usable`, shuffled; those that the row has come last."""
    shuffled = usable[torch.randperm(len(usable), generator=generator)]
    there = torch.isin(shuffled, row)
    return [*shuffled[there].tolist(), *shuffled[~there].tolist()]  # taken from the end


def _free(taken: Tensor, distance: int, generator: torch.Generator) -> int | None:
    """A place at which, and `distance` later, two tokens are free."""
    pair = ~(taken[:-1] | taken[1:])
    both = pair[: len(pair) - distance] & pair[distance:]
    places = both.nonzero()[:, 0]
    if not len(places):
        return None
    return int(places[torch.randint(len(places), (1,), generator=generator)])
