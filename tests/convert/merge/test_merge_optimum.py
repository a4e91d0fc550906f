"""`merge` loses exactly what must be lost: the singular values that do not fit in one head."""

import pytest

torch = pytest.importorskip("torch")

from headcount.convert.merge.ladder import MERGE_METHODS  # noqa: E402
from headcount.convert.merge.merging import merge_attention  # noqa: E402
from merge_objective import Objective  # noqa: E402
from small_attention import (  # noqa: E402
    Shape,
    drawn_inputs,
    measured_moments,
    random_weights,
)

pytestmark = pytest.mark.needs_convert

SHAPES = {
    "rope": Shape(rotated=6),
    "rope with biases": Shape(rotated=6, bias=True, interleaved=True),
    "nope": Shape(),
    "nope with biases": Shape(bias=True, v_head_dim=4),
    "partial": Shape(rotated=2, head_dim=7, v_head_dim=5, bias=True),
    "grouped": Shape(heads=12, rotated=6, bias=True),
    "grouped nope": Shape(heads=8),
    "wide heads": Shape(head_dim=12, v_head_dim=15, rotated=8, hidden=14),
}
GROUPS = {"even": [[0, 1], [2, 3]], "moved": [[3, 0], [1, 2]], "uneven": [[0, 2, 3], [1]]}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("name", SHAPES)
def test_merge_reaches_the_optimum_and_no_method_passes_it(name, groups, seed):
    shape, groups = SHAPES[name], GROUPS[groups]
    weights, x = random_weights(shape, seed), drawn_inputs(shape, 100 + seed)
    objective, moments = Objective(weights, shape, x), measured_moments(weights, x)
    least = objective.least(groups)
    assert min(least) >= 0 and max(least) > 0.01
    reached = {}
    for method in MERGE_METHODS:
        merged = merge_attention(weights, shape.freedom, groups, moments, method)
        reached[method] = objective.reached(groups, merged.weights)
        # What is reported is what is lost, for every method.
        assert (merged.key_error, merged.value_error) == pytest.approx(reached[method], abs=1e-8)
        assert reached[method][0] >= least[0] - 1e-9 and reached[method][1] >= least[1] - 1e-9
    assert reached["merge"] == pytest.approx(least, abs=1e-8)
    mean = merge_attention(weights, shape.freedom, groups, moments, "merge")
    assert (mean.key_mean_error, mean.value_mean_error) == pytest.approx(reached["mean"], abs=1e-8)
