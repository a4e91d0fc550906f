"""Heads that agree inside groups: no method changes what the attention computes."""

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from headcount.convert.merge.ladder import MERGE_METHODS  # noqa: E402
from headcount.convert.merge.merging import merge_attention  # noqa: E402
from headcount.convert.merge.moments import white_moments  # noqa: E402
from small_attention import (  # noqa: E402
    Shape,
    attention,
    drawn_inputs,
    measured_moments,
    random_weights,
)

pytestmark = pytest.mark.needs_convert

SHAPES = {
    "rope": Shape(rotated=6),
    "interleaved": Shape(rotated=6, interleaved=True, bias=True),
    "nope": Shape(bias=True),
    "partial": Shape(rotated=2, head_dim=8, v_head_dim=5, bias=True),
    "grouped": Shape(heads=12, rotated=6, bias=True),
    "grouped nope": Shape(heads=8, v_head_dim=4),
}
GROUPS = [[0, 2, 3], [1]]


def tied(weights, groups):
    """The same with every K/V head of a group made equal to its first."""
    first = {head: members[0] for members in groups for head in members}
    order = [first[head] for head in range(len(weights.k))]
    changed = {"k": weights.k[order], "v": weights.v[order]}
    for name in ("k_bias", "v_bias"):
        bias = getattr(weights, name)
        changed[name] = None if bias is None else bias[order]
    return replace(weights, **changed)


@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("data", ["white", "drawn", "flat"])
def test_equal_heads_change_nothing(name, method, data):
    shape = SHAPES[name]
    weights = tied(random_weights(shape, 1), GROUPS)
    x = drawn_inputs(shape, 2)
    # Moments of rank 1 say nothing of most inputs.
    known = {"drawn": x, "flat": x[:1].expand(50, -1)}
    moments = white_moments(weights) if data == "white" else measured_moments(weights, known[data])
    merged = merge_attention(weights, shape.freedom, GROUPS, moments, method)
    assert merged.key_error == merged.value_error == 0
    torch.testing.assert_close(
        attention(merged.weights, shape, x[:40]),
        attention(weights, shape, x[:40]),
        atol=1e-10,
        rtol=0,
    )
