"""Latents of a source that cannot be run: of the inputs of k and v the norm in front of them is
known."""

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import nn
from transformers import PreTrainedModel

from headcount.running.built.meta_model import build_on_meta
from headcount.running.norm_gain import gain_and_shift

from ..attention_map.attention_tensors import Where
from ..merge.attention_weights import AttentionWeights
from ..merge.freedom import Freedom
from ..plan.rewriting import Rewriting
from ..plan.source import ConversionSource
from ..rewrite.freedom import freedoms_of
from ..rewrite.layer import MadeBefore, RewrittenLayer
from ..rewrite.tensors import Read, weights_of
from ..rewrite.uncalibrated import finite
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from .decoupled import Decoupled, assumed_turns, decoupled
from .factors import low_rank
from .made_layer import made_layer
from .mla_layer import mla_layer, small_scale
from .mla_shape import MlaShape

# What the norm in front of an attention is called in its layer.
_NORMS = (
    *("input_layernorm", "ln_1", "self_attn_layer_norm", "norm_1", "ln_attn", "input_norm"),
    *("attention_norm", "attn_norm", "norm1", "pre_self_attn_layernorm", "operator_norm"),
)


def layers_by_weights(rewriting: Rewriting, done: MadeBefore) -> Iterator[RewrittenLayer]:
    """One layer is in memory at a time. Raises BadValuesError for NaN and infinity."""
    source = rewriting.source
    freedoms, classes = freedoms_of(source), build_on_meta(source.config)
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
                inputs = known_inputs(source, classes, where, weights.k.shape[-1], read)
                if rewriting.mla is None:
                    factors = low_rank(weights, freedoms[where], inputs, rank)
                    yield made_layer(tensors, factors)
                else:
                    shape = rewriting.mla
                    found = _decoupled(weights, freedoms[where], inputs, shape)
                    yield mla_layer(tensors, found, shape, small_scale(found.factors.down, inputs))


def _decoupled(
    weights: AttentionWeights, freedom: Freedom, inputs: torch.Tensor, shape: MlaShape
) -> Decoupled:
    turns = assumed_turns(torch.tensor(shape.frequencies), len(weights.q))
    return decoupled(weights, freedom, inputs, turns, shape.rank)


def known_inputs(
    source: ConversionSource, classes: PreTrainedModel, where: Where, width: int, read: Read
) -> torch.Tensor:
    """[width, width]: the second moment of what k and v of an attention read, as far as it is known
    without a text: white, times the gain of the norm in front of them, beside its shift. `classes`
    is the model without values: its own code says what a norm makes of its weights."""
    norm = _norm(source, classes, where, read)
    found = None if norm is None else gain_and_shift(norm)
    if found is None or len(found[0]) != width:
        return torch.eye(width, dtype=torch.float64)
    gain, shift = found
    return gain.square().diag() + torch.outer(shift, shift)


def _norm(
    source: ConversionSource, classes: PreTrainedModel, where: Where, read: Read
) -> nn.Module | None:
    """The norm in front of an attention, in float64, with what the files hold of it."""
    stored = {}
    for name, standing in source.attention_map.standings.items():
        module, _, parameter = standing.at.inside.rpartition(".")
        of_layer = standing.is_decoder and standing.at.number == where[0]
        if of_layer and module in _NORMS:
            stored[parameter] = (module, source.checkpoint.tensors[name])
    ends = {f".{where[0]}.{module}" for module, _ in stored.values()}
    paths = (path for path, _ in classes.named_modules() if path.endswith(tuple(ends)))
    path = next(paths, None) if len(ends) == 1 else None
    if path is None:
        return None
    norm = deepcopy(classes.get_submodule(path)).to_empty(device="cpu").double()
    if {name for name, _ in norm.named_parameters()} != stored.keys():
        return None
    for name, (_, tensor) in stored.items():
        norm.get_parameter(name).copy_(read(tensor))
    return norm
