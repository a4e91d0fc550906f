"""The map of all attentions of a decoder, made once from headers, config and names of tensors."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headcount.arch.tensors.names import TensorNames
from headcount.arch.tensors.places import Place
from headcount.audit.audited import Audit
from headcount.audit.census import is_buffer
from headcount.model.decoder_attentions import attentions, readers_of
from headcount.model.mixers import Attention
from headcount.model.numbers import digits
from headcount.sources.safetensors import TensorInfo

from .attention_tensors import AttentionTensors, HeadTensors, Where
from .layouts import layout_of
from .standing import Standing, standings

_Members = dict[tuple[str, str], dict[int, tuple[TensorInfo, Place]]]


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionMap:
    """Which tensors hold which heads.

    `mixers` are the decoder's attentions that have K/V heads and weights of their own,
    `readers` the layers that read another's cache, each with that one, and `recurrent` the numbers
    of the config's other layers. `attentions` are those of
    `mixers` with their tensors, `more` those of readers (files may hold a k and v that these do not
    use) and of layers that the config does not count. `standings` are those of all tensors in
    numbered lists, and `by_name` finds what a tensor of an attention holds.
    """

    mixers: Mapping[Where, Attention]
    readers: Mapping[int, int] = field(default_factory=dict)
    recurrent: frozenset[int] = frozenset()
    attentions: Mapping[Where, AttentionTensors] = field(default_factory=dict)
    more: Mapping[Where, AttentionTensors] = field(default_factory=dict)
    standings: Mapping[str, Standing] = field(default_factory=dict)
    by_name: Mapping[str, HeadTensors] = field(default_factory=dict)


def attention_map(audit: Audit) -> AttentionMap:
    """The map of an audited model; without tensors where it has no headers."""
    mixers, readers = attentions(audit.spec), readers_of(audit.spec)
    attending = {*(index for index, _ in mixers), *readers}
    recurrent = frozenset({layer.index for layer in audit.spec.layers} - attending)
    checkpoint, census = audit.checkpoint, audit.census
    if checkpoint is None or census is None:
        return AttentionMap(mixers=mixers, readers=readers, recurrent=recurrent)
    found = standings(checkpoint.tensors, census.stacks, audit.architecture, audit.spec.layers)
    members: dict[Where, list[_Members]] = {}
    for name, standing in found.items():
        place, tensor = standing.place, checkpoint.tensors[name]
        if not standing.is_decoder or place is None or place.index in recurrent:
            continue
        if place.part is not None and not is_buffer(tensor):
            _add(members.setdefault((place.index, place.cross), []), tensor, place)
    names = audit.architecture.names
    qkv = names.fused_by(audit.config)
    made: dict[Where, AttentionTensors] = {}
    for where in sorted(members):
        owner = owner_of(where, mixers, readers)
        if owner is not None:
            held = tuple(_held(members[where], mixers[owner], names, qkv))
            made[where] = AttentionTensors(where=where, mixer=mixers[owner], held=held)
    return AttentionMap(
        mixers=mixers,
        readers=readers,
        recurrent=recurrent,
        attentions={
            where: made.get(where) or AttentionTensors(where=where, mixer=mixer, held=())
            for where, mixer in mixers.items()
        },
        more={where: one for where, one in made.items() if where not in mixers},
        standings=found,
        by_name={t.name: one for each in made.values() for one in each.held for t in one.tensors},
    )


def owner_of(where: Where, own: Iterable[Where], readers: Mapping[int, int]) -> Where | None:
    """Which of the attentions `own` has the K/V heads of the one at `where`: itself, the one whose
    cache it reads, or the last one for a layer that is stored beyond those of the config, for
    multi-token prediction. None: that layer has no K/V heads."""
    known, (index, cross) = set(own), where
    read = readers.get(index, index), cross
    if read in known:
        return read
    last = max([*(i for i, _ in known), *readers], default=index)
    beyond = not cross and index > last
    return max((one for one in known if not one[1]), default=None) if beyond else None


def _add(members: list[_Members], tensor: TensorInfo, place: Place) -> None:
    """Sorts a tensor to those of its module. Where its place is taken it starts afresh."""
    number, _, parameter = place.parameter.rpartition(".")
    key, nth = (place.module, parameter), digits(number) or 0
    free = (one for one in members if nth not in one.get(key, ()))
    into = next(free, None)
    if into is None:
        members.append(into := {})
    into.setdefault(key, {})[nth] = (tensor, place)


def _held(
    members: list[_Members], mixer: Attention, names: TensorNames, qkv: str
) -> Iterator[HeadTensors]:
    for one in members:
        for items in one.values():
            numbers = sorted(items)
            tensor, place = items[numbers[0]]
            is_whole = numbers == list(range(len(items)))
            layout = layout_of(place, tensor.shape, len(items), mixer, names, qkv)
            tensors = tuple(items[nth][0] for nth in numbers)
            yield HeadTensors(tensors=tensors, place=place, layout=layout if is_whole else None)
