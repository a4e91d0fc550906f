"""Which head of one model is which of another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headcount.convert.attention_map.attention_tensors import Where
from headcount.model.errors import UnsupportedModelError

from ..attentions import DecoderAttention
from .moved_heads import MovedHeads, Origins


class IncomparableHeadsError(UnsupportedModelError):
    """Two models whose heads do not correspond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """One of the two models: `fingerprint` is its own, as a conversion of it would record;
    `readers` maps layers that read another's cache to that one; `moved` is the record of the
    conversion that made it, None without one."""

    name: str
    fingerprint: str | None
    attentions: tuple[DecoderAttention, ...]
    readers: Mapping[int, int]
    moved: MovedHeads | None

    def by_number(self) -> tuple[Origins, ...]:
        """Every head is itself."""
        return tuple(tuple(range(one.num_attention_heads)) for one in self.attentions)

    def by_record(self) -> tuple[Origins, ...] | None:
        """Every head is the one of the source that the record names; None where the record speaks
        of other numbers of heads."""
        found = tuple(map(self._recorded, self.attentions))
        wanted = [one.num_attention_heads for one in self.attentions]
        return found if list(map(len, found)) == wanted else None

    def _recorded(self, one: DecoderAttention) -> Origins:
        known = {} if self.moved is None or one.nth else self.moved.origins
        where = _owner(one, known, self.readers)
        return tuple(range(one.num_attention_heads)) if where is None else known[where]


@dataclass(frozen=True, kw_only=True, slots=True)
class Matching:
    """For each attention and place the number that a head goes by: heads of `model` and `against`
    that have the same one are the same. `by` says in words how that is known."""

    model: tuple[Origins, ...]
    against: tuple[Origins, ...]
    by: str
    warnings: tuple[str, ...] = ()


def match_heads(model: Candidate, against: Candidate) -> Matching:
    """Which head of `model` is which of `against`. Raises IncomparableHeadsError where they have
    other attentions, or nothing says which head became which."""
    _check_same_attentions(model, against)
    one, other = model.moved, against.moved
    if one is not None and one.source == against.fingerprint:
        return _recorded(model, against, model=True, against=False)
    if other is not None and other.source == model.fingerprint:
        turned = (
            f"{against.name} was made from {model.name}: heads lost are those that the conversion"
            " gained; turn the two around to see what it did",
        )
        return _recorded(model, against, model=False, against=True, warnings=turned)
    if one is not None and other is not None and one.source == other.source:
        return _recorded(model, against, model=True, against=True)
    if one is not None and _is_like_source(one, against):
        warning = (
            f"{model.name} was made from {one.source_name!r}, whose files are not those of"
            f" {against.name}: its layers and heads are taken for those of that model",
        )
        return _recorded(model, against, model=True, against=False, warnings=warning)
    return _same_numbers(model, against)


def _check_same_attentions(model: Candidate, against: Candidate) -> None:
    places = [[(a.layer, a.is_cross, a.nth) for a in c.attentions] for c in (model, against)]
    if places[0] != places[1]:
        raise IncomparableHeadsError(
            f"{model.name} has {len(places[0])} attentions in its decoder, {against.name}"
            f" {len(places[1])}{_first_other(*places)}: their heads cannot be compared, see each"
            " alone with `headcount heads`"
        )


def _first_other(one: Sequence[object], other: Sequence[object]) -> str:
    """Where two lists of one length part."""
    pairs = zip(one, other, strict=False)
    place = next((place for place, (a, b) in enumerate(pairs) if a != b), None)
    return "" if len(one) != len(other) else f", in other layers from number {place} on"


def _recorded(
    one: Candidate,
    other: Candidate,
    *,
    model: bool,
    against: bool,
    warnings: tuple[str, ...] = (),
) -> Matching:
    """By the records of one of the two or both."""
    pairs = ((one, model), (other, against))
    found = [each.by_record() if recorded else each.by_number() for each, recorded in pairs]
    if found[0] is None or found[1] is None:
        liar = one if found[0] is None else other
        raise IncomparableHeadsError(
            f"{liar.name}: its conversion.json speaks of other numbers of heads than its config:"
            " it is not the record of this model"
        )
    of = [each.name for each, recorded in pairs if recorded]
    return Matching(
        model=found[0],
        against=found[1],
        by=f"what the conversion.json of {' and of '.join(of)} says of each",
        warnings=warnings,
    )


def _is_like_source(moved: MovedHeads, against: Candidate) -> bool:
    """Whether a model has the layers and heads of what the record says was converted."""
    shapes = {
        (one.layer, one.is_cross): (one.num_attention_heads, one.num_key_value_heads)
        for one in against.attentions
        if not one.nth
    }
    return all(shapes.get(where) == shape for where, shape in moved.before.items())


def _same_numbers(model: Candidate, against: Candidate) -> Matching:
    """By number, where nothing else is known and nothing speaks against it."""
    for one, other in zip(model.attentions, against.attentions, strict=True):
        if one.num_attention_heads != other.num_attention_heads:
            raise IncomparableHeadsError(
                f"layer {one.layer} has {one.num_attention_heads} query heads in {model.name},"
                f" {other.num_attention_heads} in {against.name}, and no conversion.json says which"
                " are which: compare with the model that it was made from"
            )
    # Trained further, a conversion loses its record and keeps its heads; others are told apart by
    # their shapes alone.
    alike = model.fingerprint is not None and model.fingerprint == against.fingerprint
    warnings = []
    for each in (model, against):
        if each.moved is None:
            continue
        if each.moved.is_moved and not alike:
            raise IncomparableHeadsError(
                f"{each.name}: it was made from {each.moved.source_name!r}, and its heads changed"
                " places; the other model is not that one, so that which head is which cannot be"
                " told: compare with the model that it was made from"
            )
        warnings.append(
            f"{each.name} was made from {each.moved.source_name!r}, which the other model is not:"
            " heads are matched by their numbers"
        )
    return Matching(
        model=model.by_number(),
        against=against.by_number(),
        by="their numbers",
        warnings=tuple(warnings),
    )


def _owner(
    one: DecoderAttention, known: Mapping[Where, Origins], readers: Mapping[int, int]
) -> Where | None:
    """The attention whose record is that of `one`, too; None where it was left alone."""
    where = (readers.get(one.layer, one.layer), one.is_cross)
    return where if where in known else None
