"""The latent is the best one: no other of its rank loses less of what is weighed."""

import pytest
import torch

from headcount.convert.latent.factors import Factors, key_metric, low_rank, value_metric
from headcount.convert.merge.attention_weights import AttentionWeights
from headcount.convert.merge.freedom import Freedom

pytestmark = pytest.mark.needs_convert
HALVES = Freedom(real=(0, 1), imaginary=(2, 3))


def attention(heads: int, shared: int, width: int) -> AttentionWeights:
    torch.manual_seed(0)

    def drawn(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, dtype=torch.float64)

    return AttentionWeights(
        q=drawn(heads, 4, width),
        k=drawn(shared, 4, width),
        v=drawn(shared, 4, width),
        o=drawn(heads, width, 4),
    )


def covariance(width: int) -> torch.Tensor:
    torch.manual_seed(1)
    root = torch.randn(width, width, dtype=torch.float64) * torch.logspace(
        0, -2, width, dtype=torch.float64
    )
    return root @ root.T + 1e-3 * torch.eye(width, dtype=torch.float64)


def loss(
    weights: AttentionWeights, found: Factors, freedom: Freedom, second: torch.Tensor
) -> float:
    """The two shares of energy that are lost, summed up head by head."""
    total = 0.0
    parts = (
        (weights.k, found.key, key_metric(weights, freedom, second)),
        (weights.v, found.value, value_metric(weights)),
    )
    for heads, up, metric in parts:
        lost = whole = 0.0
        for head, back, m in zip(heads, up, metric, strict=True):
            rest = head - back @ found.down
            lost += float(torch.trace(m @ rest @ second @ rest.T))
            whole += float(torch.trace(m @ head @ second @ head.T))
        total += lost / whole
    return total


@pytest.mark.parametrize(("shared", "width"), [(4, 16), (2, 24)], ids=["wide", "narrow"])
def test_no_step_away_loses_less(shared: int, width: int) -> None:
    weights, second = attention(4, shared, width), covariance(width)
    found = low_rank(weights, HALVES, second, 6)
    least = loss(weights, found, HALVES, second)
    assert abs(least - found.key_error - found.value_error) < 1e-6
    torch.manual_seed(2)
    for step in (1e-1, 1e-2, 1e-3):
        for _ in range(20):
            moved = Factors(
                down=found.down + step * torch.randn_like(found.down),
                key=found.key + step * torch.randn_like(found.key),
                value=found.value + step * torch.randn_like(found.value),
                key_error=0,
                value_error=0,
            )
            assert loss(weights, moved, HALVES, second) > least


def test_a_source_of_low_rank_comes_back() -> None:
    """Keys and values that are made of 6 numbers, by hand, are rebuilt from 6."""
    weights, second = attention(4, 4, 24), covariance(24)
    torch.manual_seed(3)
    hidden = torch.randn(6, 24, dtype=torch.float64)
    k, v = (torch.randn(4, 4, 6, dtype=torch.float64) @ hidden for _ in range(2))
    made = AttentionWeights(q=weights.q, k=k, v=v, o=weights.o)
    found = low_rank(made, HALVES, second, 6)
    assert (found.key @ found.down - k).abs().max() < 1e-9
    assert (found.value @ found.down - v).abs().max() < 1e-9
    assert found.key_error + found.value_error < 1e-9


@pytest.mark.parametrize(("shared", "width", "rank"), [(4, 16, 16), (2, 24, 16)])
def test_full_rank_rounds_nothing(shared: int, width: int, rank: int) -> None:
    weights = attention(4, shared, width)
    found = low_rank(weights, HALVES, covariance(width), rank)
    assert torch.equal(found.key @ found.down, weights.k)
    assert torch.equal(found.value @ found.down, weights.v)


def test_keys_are_weighed_by_the_mean_over_all_angles() -> None:
    """Against scores of turned pairs, summed up over angles."""
    weights, second = attention(2, 1, 8), covariance(8)
    metric = key_metric(weights, HALVES, second)[0]
    error = torch.randn(4, dtype=torch.float64)
    total, steps = 0.0, 64
    for number in range(steps):
        for other in range(steps):
            angles = torch.tensor([number, other]) * (2 * torch.pi / steps)
            cos, sin = angles.cos().double(), angles.sin().double()
            turned = torch.cat(
                [error[:2] * cos - error[2:] * sin, error[:2] * sin + error[2:] * cos]
            )
            total += sum(float(turned @ q @ second @ q.T @ turned) for q in weights.q)
    assert total / steps**2 == pytest.approx(float(error @ metric @ error), rel=1e-6)
