"""Keys and values that stay factors give what the tensors give that they are factors of."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

from headcount.convert.models.headcount_factored import Factored, is_absorbed

BATCH, HEADS, TOKENS, WIDTH, RANK = 2, 3, 11, 4, 5
LIMIT = 1e-12
SCORES = torch.randn(BATCH * HEADS, 1, TOKENS, generator=torch.Generator().manual_seed(3)).double()


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def pair(has_bias: bool) -> tuple[Factored, Factored]:
    """Keys and values of one latent."""
    latents = random(BATCH, TOKENS, RANK)
    biases = [random(HEADS, WIDTH, seed=seed) if has_bias else None for seed in (1, 2)]
    weights = [random(HEADS, WIDTH, RANK, seed=seed) for seed in (3, 4)]
    key, value = (Factored(latents, w, b) for w, b in zip(weights, biases, strict=True))
    return key, value


QUERIES = random(BATCH, HEADS, 1, WIDTH, seed=5)
SEVERAL = random(BATCH, HEADS, 2, WIDTH, seed=6)
TWICE = random(BATCH, 2 * HEADS, 1, WIDTH, seed=7)
SEEN = random(BATCH, 1, 1, TOKENS, seed=8) > -1
ROWS = random(BATCH, 1, 2, TOKENS, seed=9) > -1
OF_HEADS = random(BATCH, HEADS, 2, TOKENS, seed=10)
MERGED = QUERIES.flatten(0, 1)


def merged(one: Any) -> Any:
    return one.reshape(BATCH * HEADS, -1, WIDTH)


# What classes do with keys and values, and so that the latents are read themselves.
PRODUCTS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "matmul": lambda k, v: torch.matmul(torch.matmul(SEVERAL, k.transpose(-1, -2)).softmax(-1), v),
    "operator": lambda k, v: (QUERIES @ k.transpose(2, 3)).softmax(-1) @ v,
    "shares below 1": lambda k, v: (QUERIES @ k.transpose(2, 3)).softmax(-1) * 0.5 @ v,
    "bmm": lambda k, v: torch.bmm(torch.bmm(MERGED, merged(k).transpose(1, 2)), merged(v)),
    "baddbmm": lambda k, v: SCORES.baddbmm(
        batch1=MERGED, batch2=merged(k).transpose(-1, -2), beta=0.5, alpha=0.3
    ),
    "baddbmm without": lambda k, v: torch.baddbmm(
        SCORES * torch.nan, MERGED, merged(k).transpose(-1, -2), beta=0, alpha=0.3
    ),
    "sdpa": lambda k, v: scaled_dot_product_attention(QUERIES, k, v),
    "sdpa, scaled": lambda k, v: scaled_dot_product_attention(QUERIES, k, v, scale=1.5),
    "sdpa, masked": lambda k, v: scaled_dot_product_attention(QUERIES, k, v, attn_mask=SEEN),
    "sdpa, rows": lambda k, v: scaled_dot_product_attention(SEVERAL, k, v, attn_mask=ROWS),
    "sdpa, one row": lambda k, v: scaled_dot_product_attention(SEVERAL, k, v, attn_mask=ROWS[0, 0]),
    "sdpa, biases": lambda k, v: scaled_dot_product_attention(SEVERAL, k, v, attn_mask=OF_HEADS),
    "sdpa, gqa": lambda k, v: scaled_dot_product_attention(TWICE, k, v, enable_gqa=True),
}  # fmt: skip
# What else may be done to a tensor, which is made for it.
OTHERS: dict[str, Callable[[Any, Any], torch.Tensor]] = {
    "dropout": lambda k, v: scaled_dot_product_attention(QUERIES, k, v, dropout_p=0.5),
    "causal": lambda k, v: scaled_dot_product_attention(SEVERAL, k, v, is_causal=True),
    "values of another": lambda k, v: scaled_dot_product_attention(QUERIES, k, v * 2),
    "repeated": lambda k, v: k[:, :, None].expand(-1, -1, 2, -1, -1).flatten(1, 2),
    "cut": lambda k, v: v[:, :, :3],
    "joined": lambda k, v: torch.cat([k, v], dim=-1),
    "summed": lambda k, v: torch.einsum("bhqd,bhtd->bhqt", QUERIES, k),
    "transposed": lambda k, v: k.transpose(1, 2).contiguous(),
    "scaled": lambda k, v: 2.0 * k / 3.0 + v - k,
    "from the left": lambda k, v: k.transpose(-1, -2) @ v,
    "reshaped": lambda k, v: k.reshape(BATCH, HEADS * TOKENS, WIDTH),
    "cast": lambda k, v: k.float().transpose(-1, -2).to("cpu").double(),
}


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("name", [*PRODUCTS, *OTHERS])
def test_it_is_the_tensor(name: str, has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    key, value = pair(has_bias)
    done = {**PRODUCTS, **OTHERS}[name]
    torch.manual_seed(0)
    expected = done(key.whole(), value.whole())
    if name in PRODUCTS:
        monkeypatch.setattr(Factored, "whole", _never)
    torch.manual_seed(0)
    found = done(key, value)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() <= (1e-6 if name == "cast" else LIMIT)


def _never(self: Any) -> None:
    raise AssertionError("the tensor is made")


@pytest.mark.parametrize("turned", [False, True])
def test_it_says_its_shape(turned: bool) -> None:
    key = pair(has_bias=True)[0]
    for one in (key, merged(key)):
        own = one.transpose(-1, -2) if turned else one
        whole = own.whole()
        assert own.shape == own.size() == whole.shape
        assert (own.size(-1), own.dim(), own.ndim) == (whole.size(-1), whole.dim(), whole.ndim)
        assert (own.dtype, own.device) == (whole.dtype, whole.device)


@pytest.mark.parametrize("queries", [1, 2, 7, 40])
@pytest.mark.parametrize("tokens", [2, 30, 300])
@pytest.mark.parametrize(("rank", "width"), [(3, 8), (24, 8), (96, 8), (96, 64)])
def test_the_cheaper_way_is_taken(queries: int, tokens: int, rank: int, width: int) -> None:
    """By the multiplications that torch counts, of keys and of values."""
    latents, weight = torch.ones(1, tokens, rank), torch.ones(2, width, rank)
    query, shares = torch.ones(1, 2, queries, width), torch.ones(1, 2, queries, tokens)
    for left, one in (
        (query, Factored(latents, weight, None).transpose(-1, -2)),
        (shares, Factored(latents, weight, None)),
    ):
        read = one._scores if one.turned else one._results
        absorbed, rebuilt = _counted(read, left), _counted(lambda x: x @ one.whole(), left)  # noqa: B023
        assert is_absorbed(queries, tokens, rank, width) == (absorbed < rebuilt)
        assert _counted(one.times, left) == min(absorbed, rebuilt)


def _counted(call: Callable[[torch.Tensor], Any], left: torch.Tensor) -> int:
    with FlopCounterMode(display=False) as counter:
        call(left)
    return counter.get_total_flops()
