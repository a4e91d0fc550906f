"""Layers whose heads are merged by their weights alone."""

from collections.abc import Callable, Iterator
from itertools import accumulate

import torch

from headcount.audit.source.safetensors import TensorInfo

from ..merge.attention import AttentionWeights, Freedom, Groups, Moments
from ..merge.grouping import neighbour_groups, similar_groups
from ..merge.ladder import Ladder
from ..merge.merging import merge_attention
from ..merge.moments import white_moments
from ..plan.draft import Heads, HeadsByLayer
from ..plan.errors import BadValuesError
from ..plan.source import Source
from ..stream.duplicates import same_as_runs
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from .freedom import freedoms_of
from .layer import RewrittenLayer, attention_key, merged_document
from .tensors import AttentionTensors, Read, attention_tensors, tensors_of, weights_of


def uncalibrated_layers(
    source: Source,
    heads: HeadsByLayer,
    ladder: Ladder,
    done: Callable[[int], RewrittenLayer | None],
) -> Iterator[RewrittenLayer]:
    """Every layer whose K/V heads become fewer, in order; those that `done` knows are not computed
    again. One layer is in memory at a time. Raises BadValuesError for NaN and infinity."""
    tensors = attention_tensors(source)
    freedoms = freedoms_of(source, tensors)
    changed = sorted(where for where, own in heads.layers.items() if own.is_changed)
    with one_thread(), SourceReader(source.folder) as reader:
        for index in dict.fromkeys(index for index, _ in changed):
            mine = [where for where in changed if where[0] == index]
            yield done(index) or _layer(
                [(tensors[w], freedoms[w], heads.layers[w]) for w in mine], ladder, finite(reader)
            )


def finite(reader: SourceReader) -> Read:
    """Reads tensors that may be merged. Raises BadValuesError for one that is not finite."""

    def read(info: TensorInfo) -> torch.Tensor:
        values = reader.tensor(info)
        if not bool(values.isfinite().all()):
            raise BadValuesError(
                f"{reader.folder / info.file}: tensor {info.name!r} holds NaN or infinity;"
                " nothing was kept"
            )
        return values

    return read


def _layer(
    attentions: list[tuple[AttentionTensors, Freedom, Heads]], ladder: Ladder, read: Read
) -> RewrittenLayer:
    made: dict[str, torch.Tensor] = {}
    measured = {}
    for tensors, freedom, own in attentions:
        weights = weights_of(tensors, read)
        if not is_tied(weights, own):
            moments = white_moments(weights)
            groups = groups_of(weights, freedom, moments, own, ladder)
            merged = merge_attention(weights, freedom, groups, moments, ladder.method)
            assert merged.groups == own.runs  # what the plan pools
            made |= tensors_of(tensors, merged.weights, read, merged.order, merged.groups)
            measured[attention_key(tensors.where[1])] = merged_document(merged)
    index = attentions[0][0].where[0]
    return RewrittenLayer(index=index, tensors=made, measured=measured)


def is_tied(weights: AttentionWeights, own: Heads) -> bool:
    """Whether the heads that are to become one are equal already: they are better left alone."""
    held = (weights.k, weights.v, weights.k_bias, weights.v_bias)
    firsts = list(accumulate(own.runs[:-1], initial=0))
    return all(same_as_runs(heads, own.runs, heads[firsts]) for heads in held if heads is not None)


def groups_of(
    weights: AttentionWeights, freedom: Freedom, moments: Moments, own: Heads, ladder: Ladder
) -> Groups:
    """The K/V heads that become one: neighbours, or those that are alike where heads may move. The
    longer groups first, as the plan pools them."""
    if ladder.grouping == "contiguous":
        return neighbour_groups(own.before, own.after)
    groups = similar_groups(weights, freedom, moments, own.after)
    return sorted(groups, key=len, reverse=True)
