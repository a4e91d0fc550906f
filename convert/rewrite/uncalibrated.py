"""Layers whose heads are merged by their weights alone."""

from collections.abc import Iterator, Mapping

import torch

from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import Where
from ..merge.attention_weights import AttentionWeights, Groups, Moments
from ..merge.head_moments import white_moments
from ..merge.ladder import Ladder
from ..merge.merging import merge_attention
from ..plan.errors import BadValuesError
from ..plan.heads import HeadsByLayer
from ..plan.source import ConversionSource
from ..stream.reader import SourceReader
from ..stream.threads import one_thread
from .freedom import freedoms_of
from .groups import Planned, common_groups, groups_of, is_tied, recorded_groups
from .layer import MadeBefore, RewrittenLayer, attention_key, merged_document
from .tensors import Read, tensors_of, weights_of


def uncalibrated_layers(
    source: ConversionSource,
    heads: HeadsByLayer,
    ladder: Ladder,
    done: MadeBefore,
    chosen: Mapping[Where, Groups] | None = None,
) -> Iterator[RewrittenLayer]:
    """Every layer whose K/V heads become fewer, in order; those that `done` knows are not computed
    again. `chosen`: groups of K/V heads that an earlier run has chosen. One layer is in memory at a
    time. Raises BadValuesError for NaN and infinity."""
    tensors, freedoms = source.attention_map.attentions, freedoms_of(source, heads)
    changed = sorted(where for where, own in heads.layers.items() if own.is_changed)
    attentions = {w: (tensors[w], freedoms[w], heads.layers[w]) for w in changed}
    with SourceReader(source.checkpoint.files) as reader:
        together = _Together(attentions, ladder, finite(reader), done, chosen or {})
        for index in dict.fromkeys(index for index, _ in changed):
            yield done(index) or _layer(
                index, {w: one for w, one in attentions.items() if w[0] == index}, together
            )


def finite(reader: SourceReader) -> Read:
    """Reads tensors that may be merged. Raises BadValuesError for one that is not finite."""

    def read(info: TensorInfo) -> torch.Tensor:
        values = reader.tensor(info)
        if not bool(values.isfinite().all()):
            raise BadValuesError(
                f"{reader.path(info.file)}: tensor {info.name!r} holds NaN or infinity;"
                " nothing was kept"
            )
        return values

    return read


class _Together:
    """All attentions that change, and the groups of those that must agree on them."""

    def __init__(
        self,
        attentions: Mapping[Where, Planned],
        ladder: Ladder,
        read: Read,
        done: MadeBefore,
        chosen: Mapping[Where, Groups],
    ) -> None:
        self.ladder, self.read, self._chosen = ladder, read, chosen
        self._attentions, self._done = attentions, done
        self._common: dict[int, Groups | None] = {}

    def groups(
        self, attention: Planned, weights: AttentionWeights, moments: Moments
    ) -> Groups | None:
        """Of one attention; None where its heads are equal already and stay as they are."""
        tensors, freedom, own = attention
        if tensors.where in self._chosen:
            return self._chosen[tensors.where]
        if self.ladder.grouping == "similar" and freedom.order_set is not None:
            return self._groups_of_set(freedom.order_set)
        if is_tied(weights, own):
            return None
        return groups_of(weights, freedom, moments, own, self.ladder)

    def _groups_of_set(self, number: int) -> Groups | None:
        """Chosen once; a run that goes on with the layers of another keeps what that chose."""
        if number not in self._common:
            members = {w: a for w, a in self._attentions.items() if a[1].order_set == number}
            before = next((layer for w in members if (layer := self._done(w[0]))), None)
            if before is None:
                self._common[number] = common_groups(list(members.values()), self.read)
            else:
                document = before.measured.get(attention_key(cross=False))
                self._common[number] = None if document is None else recorded_groups(document)
        return self._common[number]


@one_thread()
def _layer(index: int, attentions: Mapping[Where, Planned], together: _Together) -> RewrittenLayer:
    made: dict[str, torch.Tensor] = {}
    measured = {}
    read, method = together.read, together.ladder.method
    for (_, cross), attention in attentions.items():
        tensors, freedom, own = attention
        weights = weights_of(tensors, read, own.subset)
        moments = white_moments(weights)
        groups = together.groups(attention, weights, moments)
        if groups is not None:
            merged = merge_attention(weights, freedom, groups, moments, method)
            assert merged.groups == own.runs  # what the plan pools
            made |= tensors_of(
                tensors, merged.weights, read, merged.order, merged.groups, own.subset
            )
            measured[attention_key(cross)] = merged_document(merged)
    return RewrittenLayer(index=index, tensors=made, measured=measured)
