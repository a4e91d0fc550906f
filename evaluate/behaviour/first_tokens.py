"""The spread by first token: the same words behind different ones, where attention has its sink."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .row_scores import score_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstTokenRows:
    """`ids` [first tokens * bodies, 1 + tokens]: every body behind every first token."""

    ids: Tensor
    first: tuple[int, ...]
    bodies: int


@dataclass(frozen=True, kw_only=True, slots=True)
class FirstToken:
    """Mean loss in nats of the bodies behind one token; the token right after it is left out, which
    it tells something about."""

    id: int
    text: str
    model: float
    against: float | None
    delta: float | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def choose_first_tokens(
    ids: Sequence[int], special: Sequence[int], *, count: int, seed: int
) -> tuple[int, ...]:
    """Special tokens, then the most frequent of a text, which are what sinks are learned on, for a
    half of `count`, then others of the text."""
    frequent = [token for token, _ in Counter(ids).most_common()]
    first = [*dict.fromkeys([*special, *frequent])][: max(count // 2, len(special))]
    rest = [token for token in frequent if token not in first]
    order = torch.randperm(len(rest), generator=torch.Generator().manual_seed(seed)).tolist()
    return (*first, *(rest[at] for at in order[: max(count - len(first), 0)]))


def first_token_rows(first: Sequence[int], bodies: Tensor) -> FirstTokenRows:
    """`bodies` [n, tokens], each behind each of `first`."""
    begin = torch.tensor(first)[:, None, None].expand(-1, len(bodies), -1)
    each = bodies[None].expand(len(first), -1, -1)
    ids = torch.cat([begin, each], dim=2).flatten(0, 1)
    return FirstTokenRows(ids=ids, first=tuple(first), bodies=len(bodies))


def first_token_losses(
    models: Sequence[PreTrainedModel], rows: FirstTokenRows, decode: Callable[[list[int]], str]
) -> tuple[FirstToken, ...]:
    """Of the model, and the original if it is there; in the order of the tokens."""
    means = [_means(model, rows) for model in models]
    return tuple(
        FirstToken(
            id=token,
            text=decode([token]),
            model=own[0],
            against=own[1] if len(own) > 1 else None,
            delta=own[0] - own[1] if len(own) > 1 else None,
        )
        for token, *own in zip(rows.first, *means, strict=True)
    )


def _means(model: PreTrainedModel, rows: FirstTokenRows) -> list[float]:
    losses = score_rows(model, rows.ids, what="first tokens").losses[:, 1:]
    means: list[float] = losses.reshape(len(rows.first), -1).mean(dim=1).tolist()
    return means
