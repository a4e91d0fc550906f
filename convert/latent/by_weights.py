"""Latents from the weights alone: of the inputs of k and v the norm in front of them is known."""

from collections.abc import Iterator

import torch

from ..attention_map.attention_tensors import Where
from ..plan.rewriting import Rewriting
from ..plan.source import ConversionSource
from ..rewrite.freedom import freedoms_of
from ..rewrite.layer import MadeBefore, RewrittenLayer
from ..rewrite.tensors import Read, weights_of
from ..rewrite.uncalibrated import finite
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from .factors import low_rank
from .made_layer import made_layer

# What the norm in front of an attention is called in its layer.
_NORMS = (
    *("input_layernorm", "ln_1", "self_attn_layer_norm", "norm_1", "ln_attn", "input_norm"),
    *("attention_norm", "attn_norm", "norm1", "pre_self_attn_layernorm", "operator_norm"),
)


def layers_by_weights(rewriting: Rewriting, done: MadeBefore) -> Iterator[RewrittenLayer]:
    """One layer is in memory at a time. Raises BadValuesError for NaN and infinity."""
    source = rewriting.source
    freedoms = freedoms_of(source)
    with SourceReader(source.checkpoint.files) as reader:
        read = finite(reader)
        for where, rank in sorted(rewriting.ranks.items()):
            before = done(where[0])
            if before is not None:
                yield before
                continue
            with one_thread(), torch.no_grad():
                tensors = source.attention_map.attentions[where]
                weights = weights_of(tensors, read)
                inputs = known_inputs(source, where, weights.k.shape[-1], read)
                factors = low_rank(weights, freedoms[where], inputs, rank)
                yield made_layer(tensors, factors)


def known_inputs(source: ConversionSource, where: Where, width: int, read: Read) -> torch.Tensor:
    """[width, width]: the second moment of what k and v of an attention read, as far as it is known
    without a text: white, times the gain of the norm in front of them, beside its shift."""
    gain, shift = (_norm(source, where, name, width, read) for name in ("weight", "bias"))
    second = torch.eye(width, dtype=torch.float64) if gain is None else gain.square().diag()
    return second if shift is None else second + torch.outer(shift, shift)


def _norm(
    source: ConversionSource, where: Where, parameter: str, width: int, read: Read
) -> torch.Tensor | None:
    names = tuple(f"{norm}.{parameter}" for norm in _NORMS)
    for name, standing in source.attention_map.standings.items():
        of_layer = standing.is_decoder and standing.at.number == where[0]
        if of_layer and standing.at.inside in names:
            info = source.checkpoint.tensors[name]
            return read(info).double() if info.shape == (width,) else None
    return None
