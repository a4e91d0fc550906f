"""What norms and gates forbid is left alone, and what they allow is used."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headcount.convert.merge.grouping import similar_groups  # noqa: E402
from headcount.convert.merge.ladder import MERGE_METHODS  # noqa: E402
from headcount.convert.merge.merging import merge_attention  # noqa: E402
from merge_objective import Objective  # noqa: E402
from small_attention import (  # noqa: E402
    Shape,
    attention,
    drawn_inputs,
    measured_moments,
    projected,
    random_weights,
)

pytestmark = pytest.mark.needs_convert

GROUPS = [[0, 2, 3], [1, 4]]
ORDER = [0, 2, 3, 1, 4]


def case(seed=3, **changes):
    shape = Shape(heads=10, kv_heads=5, rotated=6, **changes)
    weights, x = random_weights(shape, seed), drawn_inputs(shape, 4)
    # Queries of unlike strength, or their weights would not matter.
    weights = replace(weights, q=weights.q * torch.linspace(0.2, 3, 10).double()[:, None, None])
    return shape, weights, x, measured_moments(weights, x)


@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("head_norms", [False, True])
def test_a_norm_of_q_and_k_leaves_queries_as_they_are(method, head_norms):
    shape, weights, _, moments = case(bias=True)
    freedom = replace(shape.freedom, keys=False, head_norms=head_norms)
    merged = merge_attention(weights, freedom, GROUPS, moments, method)
    queries = weights.queries_of(ORDER)
    assert torch.equal(merged.weights.q, weights.q[queries])
    assert torch.equal(merged.weights.q_bias, weights.q_bias[queries])
    mean = merge_attention(weights, freedom, GROUPS, moments, "mean").weights
    assert torch.equal(merged.weights.k, mean.k) == (
        method == "mean" or (method == "renorm" and head_norms)
    )
    if method in ("align", "merge"):
        assert merged.key_error < merged.key_mean_error


@pytest.mark.parametrize("method", MERGE_METHODS)
def test_a_gate_before_the_output_leaves_it_as_it_is(method):
    shape, weights, _, moments = case(bias=True)
    freedom = replace(shape.freedom, values=False)
    merged = merge_attention(weights, freedom, GROUPS, moments, method)
    assert torch.equal(merged.weights.o, weights.o[weights.queries_of(ORDER)])
    assert torch.equal(merged.weights.o_bias, weights.o_bias)
    if method in ("align", "merge"):
        # Every row of v is a mean of the members' same rows.
        used = merged.weights.v[0].numpy()
        for row in range(shape.v_head_dim):
            own = weights.v[GROUPS[0], row].numpy()
            shares, *_ = np.linalg.lstsq(own.T, used[row], rcond=None)
            assert shares.sum() == pytest.approx(1) and (shares > 0).all()
            assert own.T @ shares == pytest.approx(used[row])


def test_keys_that_cannot_be_mapped_are_pooled_by_what_reads_them():
    """Against the normal equations of every frequency, from inputs."""
    shape, weights, x, moments = case()
    freedom = replace(shape.freedom, keys=False)
    merged = merge_attention(weights, freedom, GROUPS, moments, "merge")
    objective = Objective(weights, shape, x)
    reached = objective.reached(GROUPS, merged.weights)
    assert merged.key_error == pytest.approx(reached[0], abs=1e-8)
    energies = projected(weights.q, None, x).square().mean(1).numpy().reshape(5, 2, 6).sum(1)
    for pair in range(3):
        rows = [pair, pair + 3]
        read = energies[GROUPS[0]][:, rows].sum(1)
        for row in rows:
            wanted = np.average(weights.k[GROUPS[0], row].numpy(), axis=0, weights=read)
            assert merged.weights.k[0, row].numpy() == pytest.approx(wanted, rel=1e-6)


def test_the_scale_of_a_head_does_not_count_under_a_norm_of_its_own():
    shape, weights, x, _ = case()
    freedom = replace(shape.freedom, keys=False, head_norms=True)
    scale = torch.tensor([1, 30, 0.1, 5, 2], dtype=torch.float64)[:, None, None]
    louder = replace(weights, k=weights.k * scale)

    def direction(some, method="merge"):
        moments = measured_moments(some, x)
        keys = merge_attention(some, freedom, GROUPS, moments, method).weights.k
        return keys / keys.norm(dim=(1, 2), keepdim=True)

    torch.testing.assert_close(direction(louder), direction(weights), atol=1e-6, rtol=0)
    assert (direction(louder, "mean") - direction(weights, "mean")).abs().max() > 0.1
    groups = [
        similar_groups(some, freedom, measured_moments(some, x), 2) for some in (weights, louder)
    ]
    assert groups[0] == groups[1]


@pytest.mark.parametrize("rotated", [0, 2])
def test_biases_take_the_means_that_the_merge_loses(rotated):
    """Constant inputs: what a bias can hold is held, though no K or V head is like another."""
    shape = Shape(rotated=rotated, bias=True)
    weights, x = random_weights(shape, 3), drawn_inputs(shape, 4)
    merged = merge_attention(
        weights, shape.freedom, [[0, 1], [2, 3]], measured_moments(weights, x), "merge"
    )
    keys = projected(merged.weights.k, merged.weights.k_bias, x).mean(1)
    assert keys[:, rotated:].abs().max() < 1e-8
    still = x.mean(0).expand(7, -1)
    torch.testing.assert_close(
        attention(merged.weights, shape, still), attention(weights, shape, still), atol=1e-8, rtol=0
    )


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("bias", [False, True])
def test_values_as_every_query_head_mixes_them(seed, bias):
    """Against the mean square error of the outputs of every query head by itself."""
    shape, weights, x, moments = case(seed, bias=bias)
    made = torch.Generator().manual_seed(seed)
    mixes = (torch.randn(10, len(x), len(x), generator=made).double() * 2).softmax(-1)
    v = projected(weights.v, weights.v_bias, x)
    members = {head: group for group in GROUPS for head in group}
    mixed, means, plain = [], [], []
    for query in range(10):
        z = torch.cat([mixes[query] @ v[head] for head in members[query // 2]], 1)
        mixed.append(z.T @ z / len(x))
        means.append(z.mean(0))
        plain.append(mixes[query] @ v[query // 2] @ weights.o[query].T)
    known = replace(moments, mixed=mixed, mixed_mean=means)
    energy = sum((y - y.mean(0) * bias).square().sum() for y in plain)
    errors = {}
    for method in MERGE_METHODS:
        merged = merge_attention(weights, shape.freedom, GROUPS, known, method)
        lost = 0.0
        for place, query in enumerate(weights.queries_of(ORDER)):
            new = projected(merged.weights.v, merged.weights.v_bias, x)[place // 2]
            error = plain[query] - mixes[query] @ new @ merged.weights.o[place].T
            lost += (error - error.mean(0) * bias).square().sum()
        errors[method] = float(lost / energy)
        assert merged.value_error == pytest.approx(errors[method], abs=1e-7)
    assert errors["merge"] == min(errors.values())
