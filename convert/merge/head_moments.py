"""Second moments of heads: those that follow from the weights alone, and those of one group."""

from collections.abc import Sequence

import torch

from .attention_weights import AttentionWeights, Moments

# How much of what white inputs would give is added to what was measured, as a share of the trace.
# Inputs that the data does not show (rank-deficient moments) still count then, a little.
_SHARE = 1e-9


def white_moments(weights: AttentionWeights) -> Moments:
    """The moments of inputs of mean 0 and covariance I: W W^T + b b^T, the means are the biases."""
    queries = [
        _product(weights.q[[head]], None if weights.q_bias is None else weights.q_bias[[head]])
        for head in range(len(weights.q))
    ]
    return Moments(
        queries=torch.stack(queries),
        keys=_product(weights.k, weights.k_bias),
        key_mean=_mean(weights.k, weights.k_bias),
        values=_product(weights.v, weights.v_bias),
        value_mean=_mean(weights.v, weights.v_bias),
    )


def group_moments(
    moments: Moments | None, own: AttentionWeights, members: Sequence[int]
) -> Moments:
    """Those of the K/V heads `members` of an attention and of the queries that read them, in their
    order and in float64; `own` are the weights of these alone. None: as if inputs were white."""
    white = white_moments(own)
    if moments is None:
        return white
    heads = own.queries_of(members)
    keys, values = _rows(members, own.k), _rows(members, own.v)
    mixed, mixed_mean = moments.mixed, moments.mixed_mean
    return Moments(
        queries=torch.stack(
            [_steadied(moments.queries[head], white.queries[i]) for i, head in enumerate(heads)]
        ),
        keys=_steadied(moments.keys[keys[:, None], keys], white.keys),
        key_mean=moments.key_mean[keys].double(),
        values=_steadied(moments.values[values[:, None], values], white.values),
        mixed=None if mixed is None else [_steadied(mixed[head], white.values) for head in heads],
        value_mean=None if moments.value_mean is None else moments.value_mean[values].double(),
        mixed_mean=None if mixed_mean is None else [mixed_mean[head].double() for head in heads],
    )


def _product(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """[n*d, n*d]: the second moment of the heads [n, d, D] and their bias on white inputs."""
    rows = weight.flatten(0, 1).double()
    product = rows @ rows.T
    return product if bias is None else product + torch.outer(*[bias.flatten().double()] * 2)


def _mean(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if bias is None:
        return torch.zeros(weight.shape[:2].numel(), dtype=torch.float64, device=weight.device)
    return bias.flatten().double()


def _steadied(measured: torch.Tensor, white: torch.Tensor) -> torch.Tensor:
    return with_white(measured, white, _SHARE)


def with_white(measured: torch.Tensor, white: torch.Tensor, share: float) -> torch.Tensor:
    """`measured` with `share` times its trace of `white`, both [n, n], in float64.

    Unlike a multiple of the identity this keeps what heads have in common: heads that agree on all
    inputs still agree in the sum. Measured moments of nothing (0) become `white`.
    """
    measured = measured.double()
    size, white_size = float(measured.trace()), float(white.trace())
    if white_size <= 0:
        return measured
    return white.double() if size <= 0 else measured + (share * size / white_size) * white


def _rows(members: Sequence[int], heads: torch.Tensor) -> torch.Tensor:
    """Where the rows of `members` are among those of all heads, `heads` [m, d, E]."""
    width = heads.shape[1]
    first = torch.tensor(list(members), device=heads.device)[:, None] * width
    return (first + torch.arange(width, device=heads.device)).flatten()
