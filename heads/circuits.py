"""Copying: whether what a head writes raises the token that it reads (its OV circuit)."""

from collections.abc import Callable

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.convert.attention_map.attention_tensors import AttentionTensors
from headcount.convert.rewrite.tensors import weights_of
from headcount.convert.stream.reader import DTYPES
from headcount.model.errors import InvalidWeightsError
from headcount.sources.safetensors import TensorInfo

_ROWS = 8192  # of the vocabulary that are multiplied at a time, in float32


def vocabulary_product(model: PreTrainedModel) -> Tensor | None:
    """[D, D] = W_E^T W_U, float32: from what a token is embedded as to what raises its own logit,
    summed over the vocabulary. W_U is taken less its mean row, which no softmax sees. None where
    the two are not of one width and one vocabulary, or there is no output embedding."""
    read, write = model.get_input_embeddings(), model.get_output_embeddings()
    one, other = getattr(read, "weight", None), getattr(write, "weight", None)
    if one is None or other is None or one.shape != other.shape:
        return None
    mean = other.float().mean(dim=0).to(one.device)
    pairs = zip(one.split(_ROWS), other.split(_ROWS), strict=True)
    product = torch.zeros(one.shape[1], one.shape[1], device=one.device)
    for embedded, unembedded in pairs:
        product += embedded.float().T @ (unembedded.to(one.device).float() - mean)
    return product.cpu()


def copying_scores(
    tensors: AttentionTensors,
    read: Callable[[TensorInfo], Tensor],
    product: Tensor,
    *,
    before: Tensor | None = None,
    after: Tensor | None = None,
) -> list[float | None] | None:
    """For each query head, sum(λ) / sum(|λ|) over the eigenvalues λ of W_U W_O W_V W_E: from 1, it
    copies, to -1, it holds down what it reads (Elhage et al. 2021, "Summarizing OV/QK matrices").

    That matrix has a row for each token; those of W_V W_E W_U W_O, of one head's width, are the
    same but for zeros. `before` and `after` [D] are gains of norms on what the attention reads, and
    on what it writes until it meets W_U. None for a head that writes nothing; and for an attention
    that is stored packed, or whose values come from or go to another width. Raises
    InvalidWeightsError for weights that are not finite.
    """
    held = {part for one in tensors.projections for part in one.parts}
    plain = all(one.fits and one.tensor.dtype in DTYPES for one in tensors.projections)
    if not plain or not {"q", "k", "o"} <= held:
        return None
    weights = weights_of(tensors, read)
    if weights.v.shape[-1] != len(product) or weights.o.shape[1] != len(product):
        return None
    values = weights.v.float().repeat_interleave(weights.group_size, dim=0)
    output = weights.o.float()
    if before is not None:
        values = values * before
    if after is not None:
        output = output * after[:, None]
    circuits = values @ product @ output  # [H, dv, dv]
    if not torch.isfinite(circuits).all():
        raise InvalidWeightsError(
            f"layer {tensors.where[0]}: its OV circuits are not finite: embeddings, norms, v or o"
            " hold NaN or infinities (see headcount audit --scan)"
        )
    eigenvalues = torch.linalg.eigvals(circuits)
    total = eigenvalues.abs().sum(dim=-1)
    share = (eigenvalues.sum(dim=-1).real / total).tolist()
    return [value if size > 0 else None for value, size in zip(share, total.tolist(), strict=True)]
