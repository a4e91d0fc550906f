"""Heads chosen among those of all layers, against trying every choice."""

from collections.abc import Iterator, Mapping
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headcount.convert.importance.across_layers import least_of_all
from headcount.model.mixers import Attention

pytestmark = pytest.mark.needs_convert


def mixer(heads: int, key_value_heads: int) -> Attention:
    return Attention(
        hidden_size=8 * heads,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=8,
        v_head_dim=8,
    )


def subsets(own: Attention) -> Iterator[tuple[int, ...]]:
    """What may go of an attention: as many query heads stay of each K/V head, or none does."""
    for count in range(own.num_attention_heads):
        for gone in combinations(range(own.num_attention_heads), count):
            left = [0] * own.num_key_value_heads
            for head in {*range(own.num_attention_heads)} - {*gone}:
                left[head // own.group_size] += 1
            if len({n for n in left if n}) == 1:
                yield gone


SCORE = st.integers(0, 20)
SHAPES = st.sampled_from([(4, 4), (4, 2), (6, 2), (3, 3)])


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_no_other_choice_loses_less(data: st.DataObject) -> None:
    mixers = {i: mixer(*data.draw(SHAPES)) for i in range(data.draw(st.integers(1, 3)))}
    scores = {
        i: data.draw(st.lists(SCORE, min_size=n, max_size=n))
        for i, n in ((i, own.num_attention_heads) for i, own in mixers.items())
    }
    wanted = data.draw(st.integers(0, 8))
    found = least_of_all(mixers, scores, wanted)
    choices = [
        (sum(map(len, gone)), lost(dict(enumerate(gone)), scores))
        for gone in product(*map(subsets, mixers.values()))
    ]
    most = max(count for count, _ in choices if count <= wanted)
    assert sum(map(len, found.values())) == most
    assert lost(found, scores) == min(cost for count, cost in choices if count == most)
    assert all(found[i] in set(subsets(mixers[i])) for i in found)


def lost(gone: Mapping[int, tuple[int, ...]], scores: Mapping[int, list[int]]) -> int:
    return sum(scores[i][head] for i, heads in gone.items() for head in heads)
