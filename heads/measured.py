"""From the sums of an attention's patterns to its heads."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from .atlas import AttentionAtlas, Head, HeadScores, KeyValueHead
from .attentions import DecoderAttention
from .heads_request import Thresholds
from .roles import roles_of
from .scores import PatternSums, pairwise_similarity


def measured_attention(
    attention: DecoderAttention,
    path: str,
    sums: PatternSums,
    copying: Sequence[float | None] | None,
    limits: Thresholds,
) -> AttentionAtlas:
    """The heads of one attention, from what its patterns add up to and its copying scores."""
    uniform = {name: on.baseline for name, on in sums.on.items()}
    heads = tuple(
        _head(head, attention, scores, uniform, limits)
        for head, scores in enumerate(_scores(sums, copying))
    )
    return AttentionAtlas(
        attention=attention,
        path=path,
        uniform=uniform,
        heads=heads,
        key_value_heads=tuple(
            _key_value_heads(attention, heads, pairwise_similarity(sums.rows.gram))
        ),
    )


def _scores(sums: PatternSums, copying: Sequence[float | None] | None) -> Iterator[HeadScores]:
    shares = {name: on.score for name, on in sums.on.items()}
    rows, aligned = sums.rows, sums.alignment
    count = int(rows.rows)
    for head in range(rows.heads):
        named = {name: None if score is None else score[head] for name, score in shares.items()}
        reach = None if sums.distances is None else _reach(sums.distances[head])
        yield HeadScores(
            previous_token=named.get("previous_token"),
            first_token=named.get("first_token"),
            duplicate_token=named.get("duplicate_token"),
            induction=named.get("induction"),
            alignment=None if aligned is None else aligned.tau[head].item() / aligned.copies,
            copying=copying[head] if copying else None,
            distance=reach and reach.mean,
            offset=reach and reach.best,
            offset_share=reach and reach.share,
            entropy=rows.entropy[head].item() / count,
            span=rows.span[head].item() / count,
            attended=rows.attended[head].item() / count,
        )


class _Reach(NamedTuple):
    mean: float
    best: int
    share: float


def _reach(weight: Tensor) -> _Reach:
    """How far back a head looks, of its weight by distance, [T]."""
    share = weight / weight.sum().clamp(min=1e-12)
    steps = torch.arange(len(weight), dtype=share.dtype)
    best = int(share.argmax())
    return _Reach(mean=(share @ steps).item(), best=best, share=share[best].item())


def _head(
    head: int,
    attention: DecoderAttention,
    scores: HeadScores,
    uniform: dict[str, float | None],
    limits: Thresholds,
) -> Head:
    named = {name: getattr(scores, name) for name in (*uniform, "alignment")}
    return Head(
        head=head,
        key_value_head=head // attention.group_size,
        scores=scores,
        roles=roles_of(named, uniform, limits),
        copies=scores.copying is not None and scores.copying >= limits.copying,
    )


def _key_value_heads(
    attention: DecoderAttention, heads: Sequence[Head], similarity: Tensor
) -> Iterator[KeyValueHead]:
    size = attention.group_size
    for index in range(attention.num_key_value_heads):
        own = range(index * size, (index + 1) * size)
        pairs = [similarity[i, j].item() for i in own for j in own if i < j]
        yield KeyValueHead(
            key_value_head=index,
            query_heads=tuple(own),
            similarity=sum(pairs) / len(pairs) if pairs else None,
            induction_heads=tuple(i for i in own if "induction" in heads[i].roles),
        )
