"""Second moments of heads, as far as they follow from the weights alone."""

import torch

from .attention import AttentionWeights, Moments

# How much of what white inputs would give is added to what was measured, as a share of the trace.
# Inputs that the data does not show (rank-deficient moments) still count then, a little.
_SHARE = 1e-9


def white_moments(weights: AttentionWeights, dtype: torch.dtype = torch.float64) -> Moments:
    """The moments of inputs of mean 0 and covariance I: W W^T + b b^T, the means are the biases."""
    no_values = torch.zeros(weights.v.shape[:2].numel(), dtype=dtype, device=weights.v.device)
    value_mean = no_values if weights.v_bias is None else weights.v_bias.to(dtype).flatten()
    return Moments(
        queries=torch.stack(
            [
                white_product(weights.q[[head]], _rows(weights.q_bias, [head]), dtype)
                for head in range(len(weights.q))
            ]
        ),
        keys=white_product(weights.k, weights.k_bias, dtype),
        key_mean=(
            torch.zeros(weights.k.shape[:2].numel(), dtype=dtype, device=weights.k.device)
            if weights.k_bias is None
            else weights.k_bias.to(dtype).flatten()
        ),
        values=white_product(weights.v, weights.v_bias, dtype),
        value_mean=value_mean,
    )


def white_product(
    weight: torch.Tensor, bias: torch.Tensor | None, dtype: torch.dtype = torch.float64
) -> torch.Tensor:
    """[n*d, n*d]: the second moment of the heads [n, d, D] and their bias on white inputs."""
    rows = weight.flatten(0, 1).to(dtype)
    product = rows @ rows.T
    if bias is not None:
        shift = bias.flatten().to(dtype)
        product += torch.outer(shift, shift)
    return product


def steadied(measured: torch.Tensor, white: torch.Tensor) -> torch.Tensor:
    """`measured` with a small share of `white`, both [n, n], in float64.

    Unlike a multiple of the identity this keeps what heads have in common: heads that agree on all
    inputs still agree in the sum. Measured moments of nothing (0) become `white`.
    """
    measured, white = measured.double(), white.double()
    size, white_size = float(measured.trace()), float(white.trace())
    if white_size <= 0:
        return measured
    return white if size <= 0 else measured + (_SHARE * size / white_size) * white


def _rows(bias: torch.Tensor | None, heads: list[int]) -> torch.Tensor | None:
    return None if bias is None else bias[heads]
