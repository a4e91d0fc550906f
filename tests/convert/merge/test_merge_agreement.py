"""Heads that agree inside groups: no method changes what the attention computes."""

import cmath
from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from headcount.convert.merge.head_moments import white_moments  # noqa: E402
from headcount.convert.merge.ladder import MERGE_METHODS  # noqa: E402
from headcount.convert.merge.merging import merge_attention  # noqa: E402
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


def turned_apart(weights, shape, unitary):
    """Equal K/V heads turned by maps that attention does not see, differently for each: complex
    numbers for what rotates, any matrix elsewhere; phases and orthogonal ones if `unitary`."""
    made = torch.Generator().manual_seed(9)

    def matrix(size):
        drawn = torch.randn(2, size, size, generator=made, dtype=torch.float64)
        left, right = torch.linalg.qr(drawn).Q
        stretch = torch.logspace(-0.3, 0.3, size, dtype=torch.float64)
        return left if unitary else left * stretch @ right

    k, q, v, o = (getattr(weights, name).clone() for name in "kqvo")
    biases = {name: getattr(weights, name) for name in ("k_bias", "q_bias", "v_bias")}
    biases = {name: None if b is None else b.clone() for name, b in biases.items()}
    freedom, size = shape.freedom, len(q) // len(k)
    still = sorted(set(range(shape.head_dim)) - {*freedom.real, *freedom.imaginary})
    for head in range(len(k)):
        turn = torch.zeros(shape.head_dim, shape.head_dim, dtype=torch.float64)
        for real, imaginary in zip(freedom.real, freedom.imaginary, strict=True):
            angle, scale = (torch.rand(2, generator=made, dtype=torch.float64) * 3 + 0.3).tolist()
            number = cmath.rect(1.0 if unitary else scale, angle)
            turn[real, real] = turn[imaginary, imaginary] = number.real
            turn[imaginary, real], turn[real, imaginary] = number.imag, -number.imag
        if still:
            turn[torch.tensor(still)[:, None], torch.tensor(still)] = matrix(len(still))
        back, other = torch.linalg.inv(turn).T, matrix(shape.v_head_dim)
        readers = slice(head * size, (head + 1) * size)
        k[head], q[readers] = turn @ k[head], back @ q[readers]
        v[head], o[readers] = other @ v[head], o[readers] @ torch.linalg.inv(other)
        if shape.bias:
            biases["k_bias"][head] = turn @ biases["k_bias"][head]
            biases["q_bias"][readers] = biases["q_bias"][readers] @ back.T
            biases["v_bias"][head] = other @ biases["v_bias"][head]
    return replace(weights, k=k, q=q, v=v, o=o, **biases)


@pytest.mark.parametrize("method", ["align", "merge"])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("data", [False, True])
def test_heads_that_agree_up_to_a_turn_change_nothing(name, method, data):
    shape = SHAPES[name]
    equal = tied(random_weights(shape, 1), GROUPS)
    weights, x = turned_apart(equal, shape, unitary=method == "align"), drawn_inputs(shape, 2)
    before = attention(weights, shape, x[:40])
    torch.testing.assert_close(before, attention(equal, shape, x[:40]), atol=1e-9, rtol=0)
    moments = measured_moments(weights, x) if data else None
    merged = merge_attention(weights, shape.freedom, GROUPS, moments, method)
    assert merged.key_error < 1e-12 > merged.value_error
    assert merged.key_mean_error > 0.01 < merged.value_mean_error
    torch.testing.assert_close(attention(merged.weights, shape, x[:40]), before, atol=1e-8, rtol=0)


@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_heads_are_tied_in_their_new_places_and_lone_ones_stay_as_they_are(method, dtype):
    shape = Shape(heads=10, kv_heads=5, rotated=4, bias=True)
    weights = random_weights(shape, 4, dtype)
    merged = merge_attention(weights, shape.freedom, [[3, 1], [4], [0, 2]], None, method)
    new = merged.weights
    assert merged.order == (3, 1, 4, 0, 2) and merged.groups == (2, 1, 2)
    for name in ("q", "k", "v", "o", "q_bias", "k_bias", "v_bias", "o_bias"):
        before, after = getattr(weights, name), getattr(new, name)
        assert after.dtype == dtype and after.shape == before.shape
        if name in ("k", "v", "k_bias", "v_bias"):
            assert torch.equal(after[0], after[1]) and torch.equal(after[3], after[4])
            assert not torch.equal(after[1], after[2])
            assert torch.equal(after[2], before[4])
        elif name != "o_bias":
            assert torch.equal(after[4:6], before[8:10])
            if method == "mean":
                assert torch.equal(after, before[[6, 7, 2, 3, 8, 9, 0, 1, 4, 5]])
    if method == "mean":
        pool = (weights.k[3].double() + weights.k[1].double()) / 2
        assert torch.equal(new.k[0], pool.to(dtype))


@pytest.mark.parametrize("method", MERGE_METHODS)
@pytest.mark.parametrize("zero", ["q", "k", "v", "o"])
@pytest.mark.parametrize("heads", [[0], [0, 1, 2, 3]])
def test_heads_of_zeros(zero, heads, method):
    shape = Shape(rotated=4)
    weights = random_weights(shape, 4)
    getattr(weights, zero)[heads] = 0
    merged = merge_attention(weights, shape.freedom, [[0, 1], [2, 3]], None, method)
    x = drawn_inputs(shape, 2, tokens=20)
    assert attention(merged.weights, shape, x).isfinite().all()
    assert 0 <= merged.key_error <= merged.key_mean_error + 1e-12 or method == "renorm"
    if method == "merge" and heads == [0]:
        # Nothing reads or is read of one head, and the other takes all.
        error = merged.key_error if zero in "qk" else merged.value_error
        alone = merge_attention(weights, shape.freedom, [[0, 1], [2], [3]], None, method)
        assert (alone.key_error if zero in "qk" else alone.value_error) < 1e-12 < error


@pytest.mark.parametrize("groups", [[[0, 1], [2]], [[0, 1], [1, 2, 3]], [[0, 1, 2, 3], []]])
def test_groups_that_are_no_partition(groups):
    shape = Shape()
    with pytest.raises(ValueError, match="do not hold each of 4"):
        merge_attention(random_weights(shape, 1), shape.freedom, groups, None, "mean")
