"""What heads are worth by their weights alone, where there is no text.

|W_o,h W_v,h|_F, biases beside the weights: the size of what a head adds to the hidden states for
inputs that are white (Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits": its
OV circuit). Of one layer the largest is 1: layers are not compared.
"""

import torch

from ..merge.attention_weights import AttentionWeights
from ..plan.refusals.merging import check_mergeable
from ..plan.source import ConversionSource
from ..rewrite.tensors import weights_of
from ..rewrite.uncalibrated import finite
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from .head_importance import HeadImportance, rounded


def importance_by_weights(source: ConversionSource) -> HeadImportance:
    """Of every attention. One attention's weights are in memory at a time. Raises
    HeadcountError."""
    check_mergeable(source)
    scores = {}
    with SourceReader(source.checkpoint.files) as reader, one_thread():
        read = finite(reader)
        for (index, _), tensors in source.attention_map.attentions.items():
            scores[index] = _sizes(weights_of(tensors, read))
    return HeadImportance(criterion="weights", scores=rounded(scores))


def _sizes(weights: AttentionWeights) -> list[float]:
    """|W_o W_v|_F of each query head, as a share of the largest, from two small products:
    tr(W_v^T (W_o^T W_o) W_v)."""
    found = []
    for head, output in enumerate(weights.o.double()):
        shared = head // weights.group_size
        value = weights.v[shared].double()
        if weights.v_bias is not None:
            value = torch.cat([value, weights.v_bias[shared].double()[:, None]], dim=1)
        square = ((output.T @ output) * (value @ value.T)).sum()
        found.append(float(square.clamp_min(0).sqrt()))
    largest = max(found)
    return [size / largest if largest else 0.0 for size in found]
