"""What a pattern of attention looks at, as sums over queries that add up over batches. Pure maths.

B sequences, H heads, T queries, S keys.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor


class Targets(NamedTuple):
    """Where a head of each kind would look, [B, T, S] of booleans.

    `previous_token`: the token before. `first_token`: the first, of queries after it.
    `duplicate_token`: earlier tokens that are the same as the query's. `induction`: those right
    behind these (prefix matching, Olsson et al. 2022).
    """

    previous_token: Tensor
    first_token: Tensor
    duplicate_token: Tensor
    induction: Tensor


def targets_of(ids: Tensor) -> Targets:
    """The targets in the tokens `ids`, [B, T]."""
    batch, tokens = ids.shape
    place = torch.arange(tokens, device=ids.device)
    distance = place[:, None] - place
    same = (ids[:, :, None] == ids[:, None, :]) & (distance > 0)
    shape = (batch, tokens, tokens)
    return Targets(
        previous_token=(distance == 1).expand(shape),
        first_token=((place == 0) & (distance > 0)).expand(shape),
        duplicate_token=same,
        induction=same.roll(1, dims=2) & (place > 0) & (distance >= 0),
    )


def first_key(queries: int, keys: int, batch: int) -> Tensor:
    """The target of a cross-attention that looks at the first key only, [B, T, S]."""
    return (torch.arange(keys) == 0).expand(batch, queries, keys)


class OnTarget(NamedTuple):
    """Attention on a target: `weight` [H] its sum over queries that see one, `uniform` what the
    same queries would give to it if they gave the same to all that they see, `queries` how many."""

    weight: Tensor
    uniform: Tensor
    queries: Tensor

    @property
    def score(self) -> list[float] | None:
        """Means over queries, one a head; None where no query sees a target."""
        return (self.weight / self.queries).tolist() if self.queries else None

    @property
    def baseline(self) -> float | None:
        """What uniform attention would score."""
        return (self.uniform / self.queries).item() if self.queries else None


class RowSums(NamedTuple):
    """Sums over `rows` queries, a number. `attended` [H]: all weight, which is less than the
    queries where a sink in the softmax takes some. `entropy` [H] in nats, and `span` [H] its
    exponential, of rows made to sum to one. `gram` [H, H]: products of patterns."""

    rows: Tensor
    attended: Tensor
    entropy: Tensor
    span: Tensor
    gram: Tensor

    @property
    def heads(self) -> int:
        return len(self.attended)


class Alignment(NamedTuple):
    """Kendall's tau [H] of a cross-attention, added up over so many `copies` of the tokens."""

    tau: Tensor
    copies: int


@dataclass(frozen=True, kw_only=True, slots=True)
class PatternSums:
    """All that is kept of one attention's patterns, in float64 on the CPU. `distances` [H, T]: the
    weight by how far back it goes, of self-attention; `alignment` is of cross-attention."""

    on: dict[str, OnTarget]
    rows: RowSums
    distances: Tensor | None = None
    alignment: Alignment | None = None

    def __add__(self, other: "PatternSums") -> "PatternSums":
        on = {name: OnTarget(*_added(one, other.on[name])) for name, one in self.on.items()}
        distances, alignment = None, None
        if self.distances is not None and other.distances is not None:
            distances = self.distances + other.distances
        if self.alignment is not None and other.alignment is not None:
            alignment = Alignment(*_added(self.alignment, other.alignment))
        rows = RowSums(*_added(self.rows, other.rows))
        return PatternSums(on=on, rows=rows, distances=distances, alignment=alignment)


def _added(one: tuple[Any, ...], other: tuple[Any, ...]) -> Iterator[Any]:
    return (a + b for a, b in zip(one, other, strict=True))


def self_attention_sums(pattern: Tensor, targets: Targets) -> PatternSums:
    """The sums of a pattern of self-attention, [B, H, T, T]."""
    wide = pattern.float()
    seen = seen_keys(wide)
    on = {name: on_target(wide, target, seen) for name, target in targets._asdict().items()}
    return PatternSums(on=on, rows=_row_sums(wide), distances=distance_profile(wide))


def cross_attention_sums(pattern: Tensor, copies: tuple[int, int] | None) -> PatternSums:
    """The sums of a pattern of cross-attention, [B, H, T, S]. `copies` are two numbers: its queries
    are so many tokens, and then so many twice, of which its keys are an encoding; None: they are
    not, so that nothing can be aligned."""
    batch, _, queries, keys = pattern.shape
    first = first_key(queries, keys, batch).to(pattern.device)
    wide = pattern.float()
    alignment = None
    if copies is not None:
        start, tokens = copies
        tau = monotony(wide[:, :, start:].unflatten(2, (2, tokens)))
        alignment = Alignment(tau.sum(dim=(0, 2)).cpu(), 2 * batch)
    return PatternSums(
        on={"first_token": on_target(wide, first, seen_keys(wide))},
        rows=_row_sums(wide),
        alignment=alignment,
    )


def seen_keys(pattern: Tensor) -> Tensor:
    """[T, S]: the keys that a query sees, which are those that any head of a pattern [B, H, T, S],
    in any sequence, gives weight to."""
    return pattern.amax(dim=(0, 1)) > 0


def on_target(pattern: Tensor, target: Tensor, seen: Tensor) -> OnTarget:
    """Attention of `pattern` [B, H, T, S] on `target` [B, T, S], over queries that see a target."""
    reached = target & seen
    counts = reached.any(dim=-1)  # [B, T]
    share = reached.sum(dim=-1) / seen.sum(dim=-1).clamp(min=1)
    weight = pattern.flatten(2) @ reached.flatten(1).to(pattern.dtype)[..., None]  # [B, H, 1]
    uniform = (share * counts).sum(dtype=torch.float64)
    total = weight.sum(dim=(0, 2), dtype=torch.float64)
    return OnTarget(total.cpu(), uniform.cpu(), counts.sum().cpu())


def distance_profile(pattern: Tensor) -> Tensor:
    """[H, T]: all weight of a pattern [B, H, T, T] by the distance from query to key."""
    tokens = pattern.shape[-1]
    place = torch.arange(tokens, device=pattern.device)
    distance = (place[:, None] - place).clamp(min=0).flatten()
    weight = pattern.sum(dim=0).flatten(1)
    profile = torch.zeros(len(weight), tokens, device=pattern.device)
    return profile.index_add_(1, distance, weight).double().cpu()


def monotony(pattern: Tensor) -> Tensor:
    """Kendall's tau of queries and the mean place of what they attend to, [...], of [..., T, S]: 1
    where each query looks further than the one before, 0 where they do not move, -1 backwards."""
    queries, keys = pattern.shape[-2:]
    wide = pattern.double()
    place = torch.arange(keys, dtype=torch.float64, device=pattern.device)
    centre = (wide @ place) / wide.sum(dim=-1).clamp(min=1e-12)
    forward = (centre[..., None, :] - centre[..., :, None]).sign().triu(diagonal=1)
    return forward.sum(dim=(-1, -2)) / (queries * (queries - 1) / 2)


def pairwise_similarity(gram: Tensor) -> Tensor:
    """[H, H]: cosines of patterns, of their products [H, H]."""
    norm = gram.diagonal().sqrt().clamp(min=1e-12)
    return gram / (norm[:, None] * norm)


def _row_sums(pattern: Tensor) -> RowSums:
    """Sequence by sequence, so that what is computed on the way takes no more than one does."""
    rows = [_rows_of(one) for one in pattern]
    return RowSums(*(torch.stack(each).sum(dim=0) for each in zip(*rows, strict=True)))


def _rows_of(pattern: Tensor) -> tuple[Tensor, ...]:
    """The fields of RowSums of one sequence, [H, T, S]."""
    total = pattern.sum(dim=-1, keepdim=True)
    entropy = torch.special.entr(pattern / total.clamp(min=1e-12)).sum(dim=-1)  # [H, T]
    flat = pattern.flatten(1)
    sums = (total.squeeze(-1), entropy, entropy.exp())
    return (
        torch.tensor(pattern.shape[1]),
        *(one.sum(dim=-1, dtype=torch.float64).cpu() for one in sums),
        (flat @ flat.T).double().cpu(),
    )
