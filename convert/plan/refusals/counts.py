"""Numbers of K/V heads that a model's heads, or the class that is to hold them, do not allow."""

from collections.abc import Mapping

from headcount.arch.rehoming.rehome import Rehome
from headcount.model.divisors import divisors, listed
from headcount.model.mixers import Attention, Mixer
from headcount.model.spec import Layer, ModelSpec

from ...attention_map.attention_tensors import Where
from ..errors import CannotConvertError, HeadCountError, NoSuchHomeError
from ..heads import Heads, HeadsByLayer
from ..request import KeyValueHeads
from ..source import ConversionSource

_Mixers = Mapping[Where, Attention]


def for_all_layers(wanted: KeyValueHeads, before: _Mixers, where: str) -> KeyValueHeads:
    """`wanted` as one number if it asks the same of all layers. Raises HeadCountError for a layer
    that has no K/V heads, or would get more."""
    if isinstance(wanted, int):
        return wanted
    layers = {index for index, _ in before}
    for index, count in wanted.items():
        if index not in layers:
            raise HeadCountError(f"{where}: layer {index} has no K/V heads of its own")
        now = min(m.num_key_value_heads for (i, _), m in before.items() if i == index)
        if count > now:
            raise HeadCountError(f"{where}: layer {index} {_misfit(now, count)}")
    same = set(wanted.values())
    return same.pop() if len(same) == 1 and set(wanted) == layers else wanted


def check_even(source: ConversionSource, wanted: KeyValueHeads) -> None:
    """Raises HeadCountError for an odd number of heads of which one half is subtracted."""
    if source.architecture.conversion.even_only and isinstance(wanted, int) and wanted % 2:
        raise HeadCountError(
            f"{source.label}: its class subtracts one half of the V heads from the other, so that"
            f" {wanted} is not possible: choose an even number"
        )


def check_native(
    heads: Mapping[Where, Heads], after: _Mixers, wanted: KeyValueHeads, where: str
) -> None:
    """Raises unless each layer keeps its K/V heads or merges runs of them, as its class has read
    the new config (`after`)."""
    for place, own in heads.items():
        _check_read(own, after[place], where)
    if not isinstance(wanted, int):
        _check_kinds(heads, after, where)
    if any(own.is_changed for own in heads.values()):
        return
    counts = sorted({own.before for own in heads.values()})
    if not isinstance(wanted, int):
        raise HeadCountError(f"{where}: its layers have these K/V heads already")
    if wanted < counts[-1]:
        raise NoSuchHomeError(
            f"{where}: its class has one K/V head per query head and ignores num_key_value_heads,"
            " so nothing could load the result"
        )
    raise no_fit(counts[-1], wanted, where)


def check_beside(
    before: ModelSpec, after: ModelSpec, own: Heads, wanted: KeyValueHeads, where: str
) -> None:
    """Raises HeadCountError where another number of query heads, as padding or pruning makes it,
    would change mixers that have no K/V heads: a state as wide as all query heads (MiniMax), blocks
    of a gate as many as they are (RecurrentGemma)."""
    now = own.before
    if [_without_heads(layer) for layer in before.layers] != [
        _without_heads(layer) for layer in after.layers
    ]:
        if own.is_pruned:
            raise no_fewer(where)
        possible = listed(divisors(now)[:-1])
        raise HeadCountError(
            f"{where}: {now} K/V heads cannot be pooled to {wanted} in equal groups, and more query"
            " heads would change its recurrent layers, too; --kv-heads can be"
            f" {possible}"
        )


def _without_heads(layer: Layer) -> list[Mixer]:
    return [mixer for mixer in layer.mixers if mixer.kind == "recurrent"]


def _check_read(own: Heads, new: Attention, where: str) -> None:
    if own.after != new.num_key_value_heads:
        raise CannotConvertError(f"{where}: its class does not take {own.after} K/V heads")
    if own.is_pruned and new.num_attention_heads != own.padded_heads:
        raise no_fewer(where)
    if own.after > own.before or (own.is_padded and new.num_attention_heads != own.padded_heads):
        raise no_fit(own.before, own.after, where)
    if (new.head_dim, new.v_head_dim) != (own.head_dim, own.value_dim):
        if own.is_pruned:
            raise no_fewer(where)
        raise CannotConvertError(f"{where}: the new config means another head_dim")


def _check_kinds(heads: Mapping[Where, Heads], after: _Mixers, where: str) -> None:
    """transformers wants the layers of one kind to be alike, wherever it lets layers differ."""
    for slides in (False, True):
        counts = {own.after for at, own in heads.items() if bool(after[at].window) == slides}
        if len(counts) > 1:
            raise CannotConvertError(
                f"{where}: its class wants one number for all {'sliding' if slides else 'full'}"
                f" layers, not {listed(tuple(sorted(counts)))}"
            )


def check_custom(
    source: ConversionSource, wanted: KeyValueHeads, heads: Mapping[Where, Heads]
) -> None:
    """Raises unless each layer keeps its K/V heads or merges equal runs of them."""
    for (index, _), own in heads.items():
        if own.after > own.before or own.is_padded:
            layer = "" if isinstance(wanted, int) else f": layer {index}"
            raise no_fit(len(own.staying.key_value), own.after, source.label + layer)
    if not any(own.is_changed for own in heads.values()):
        own = next(iter(heads.values()))
        raise no_fit(own.before, own.after, source.label)


def check_named_layers(source: ConversionSource, wanted: KeyValueHeads) -> None:
    """Raises unless the layers that `wanted` names are layers with K/V heads of one list."""
    if isinstance(wanted, int):
        return
    if any(layer.home for layer in source.audit.spec.layers):
        raise CannotConvertError(
            f"{source.label}: the numbers of its layers are those of several lists"
        )
    strangers = set(wanted) - {index for index, _ in source.attention_map.mixers}
    if strangers:
        raise HeadCountError(f"{source.label}: layer {min(strangers)} has no K/V heads of its own")


def check_rehomed(row: Rehome, wanted: KeyValueHeads, before: int, where: str) -> int:
    """`wanted`, if the class that the model moves to can hold it in all layers."""
    if before == 1:
        raise no_fit(before, before, where)
    if row.only is not None and wanted != row.only:
        raise HeadCountError(
            f"{where}: no transformers class with its position embeddings holds {wanted} K/V heads;"
            f" --kv-heads {row.only} is possible ({row.reason})"
        )
    if not isinstance(wanted, int) or wanted >= before or before % wanted:
        raise HeadCountError(
            f"{where}: {before} K/V heads; --kv-heads can be {listed(divisors(before)[:-1])}"
            f" ({row.reason})"
        )
    return wanted


def uniform(heads: HeadsByLayer) -> Heads:
    """The heads of all layers. Raises CannotConvertError where they differ."""
    found = set(heads.layers.values())
    if len(found) > 1:
        raise CannotConvertError(
            "its layers differ in heads, and the class that could hold the result knows one"
            " number for all of them"
        )
    return next(iter(found))


def no_fit(before: int, wanted: int, where: str) -> HeadCountError:
    """A number that equal runs of `before` heads do not make."""
    if before == 1:
        return HeadCountError(f"{where}: has a single K/V head (MQA): no fewer are possible")
    possible = listed(divisors(before)[:-1])
    return HeadCountError(f"{where}: {_misfit(before, wanted)}; --kv-heads can be {possible}")


def no_fewer(where: str) -> NoSuchHomeError:
    """A class that has no place for fewer query heads of the same size."""
    return NoSuchHomeError(
        f"{where}: its class has no number of query heads and head_dim that could be changed"
        " for itself and for all layers alike, so that it cannot hold what pruning leaves"
    )


def no_place(where: str, name: str) -> CannotConvertError:
    """A config without the object `name` that the number of heads would stand in."""
    return CannotConvertError(
        f"{where}: has no {name}, so there is no place for the new number of heads: load and save"
        " it once with transformers"
    )


def one_for_all(where: str, model_type: str) -> CannotConvertError:
    """A class whose config cannot say several numbers."""
    return CannotConvertError(
        f"{where}: {model_type} has one number of K/V heads for all layers, so no config can say"
        " several"
    )


def _misfit(before: int, wanted: int) -> str:
    if wanted == before:
        return f"already has {before} K/V heads"
    if wanted > before:
        return f"has {before} K/V heads; {wanted} would be more"
    return f"{before} K/V heads cannot be pooled to {wanted} in equal groups"
