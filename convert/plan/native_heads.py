"""The heads of every layer before and after, for a model that stays in its class.

They are read off the old config and the new one in the same way: what the class makes of the keys,
layer by layer, is what the conversion does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.read_config import read_config
from headcount.model.divisors import divisors, listed
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention, CrossAttention
from headcount.model.spec import ModelSpec

from .class_limits import EVEN_ONLY, WIDTH_CHECKED
from .draft import Heads, HeadsByLayer, Where
from .errors import CannotConvertError, HeadCountError, NoSuchHomeError
from .native_config import ConfigEditor
from .request import KeyValueHeads
from .source import CONFIG, Source

# Padding to more than so many times the query heads is no help to anybody.
_MOST_PADDING = 2


def native_heads(
    source: Source, wanted: KeyValueHeads
) -> tuple[HeadsByLayer, dict[str, Any], tuple[str, ...]]:
    """The heads of each attention, the new config, and what changed in it. Raises
    CannotConvertError, and HeadCountError for a number that the heads cannot be merged to."""
    where = f"{source.folder}: {source.audit.spec.model_type}"
    before = attentions(source.audit.spec)
    wanted = _for_all(wanted, before, where)
    _refuse_odd(source, wanted, where)
    editor = ConfigEditor(source.config, str(source.folder / CONFIG))
    padded = _padding(source, before, wanted)
    editor.set_heads(wanted)
    if padded is not None:
        editor.set_query_heads(padded)
    after = _read_again(editor.new, before, wanted, where)
    heads = {
        place: padded or heads_of(mixer, after[place].num_key_value_heads)
        for place, mixer in before.items()
    }
    _check(heads, after, wanted, where)
    editor.follow(
        {n: {own.after for own in heads.values() if own.before == n} for n in _counts(heads)}
    )
    readers = {
        layer.index: layer.shares_cache_with
        for layer in source.audit.spec.layers
        if layer.shares_cache_with is not None
    }
    return HeadsByLayer(layers=heads, readers=readers), editor.new, tuple(editor.changes)


def attentions(spec: ModelSpec) -> dict[Where, Attention]:
    """Every attention of the decoder that has K/V heads and weights of its own."""
    return {
        (layer.index, isinstance(mixer, CrossAttention)): mixer
        for layer in spec.layers
        if layer.stack == "decoder"
        for mixer in layer.mixers
        if isinstance(mixer, Attention) and mixer.has_key_value and mixer.owns_parameters
    }


def _counts(heads: Mapping[Where, Heads]) -> set[int]:
    return {own.before for own in heads.values()}


def heads_of(mixer: Attention, after: int) -> Heads:
    """The heads of one attention that gets `after` K/V heads."""
    return Heads(
        num_attention_heads=mixer.num_attention_heads,
        before=mixer.num_key_value_heads,
        after=after,
        head_dim=mixer.head_dim,
        v_head_dim=mixer.v_head_dim,
    )


def _refuse_odd(source: Source, wanted: KeyValueHeads, where: str) -> None:
    if source.text_type in EVEN_ONLY and isinstance(wanted, int) and wanted % 2:
        raise HeadCountError(
            f"{where}: its class subtracts one half of the V heads from the other, so that"
            f" {wanted} is not possible: choose an even number"
        )


def _for_all(wanted: KeyValueHeads, before: Mapping[Where, Attention], where: str) -> KeyValueHeads:
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


def _padding(
    source: Source, before: Mapping[Where, Attention], wanted: KeyValueHeads
) -> Heads | None:
    """The heads with padding that a number needs which divides none of the layers' counts; None
    where it needs none, or where the class cannot hold more query heads."""
    shapes = {(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in before.values()}
    if not isinstance(wanted, int) or len(shapes) > 1 or not _may_be_padded(source):
        return None
    mixer = next(iter(before.values()))
    heads = heads_of(mixer, wanted)
    if wanted >= heads.before or not heads.is_padded:
        return None
    if source.text_type not in WIDTH_CHECKED:
        return heads
    fitting = (
        n
        for n in range(heads.padded_heads, mixer.hidden_size + 1, wanted)
        if mixer.hidden_size % n == 0 and n <= _MOST_PADDING * heads.num_attention_heads
    )
    count = next(fitting, None)
    return None if count is None else replace(heads, query_heads=count)


def _may_be_padded(source: Source) -> bool:
    """Whether heads and head_dim are two numbers of the config, each for all layers."""
    shape = source.audit.architecture.attention
    flag_only = shape.key_value_keys == ("multi_query",)
    paired = source.text_type in EVEN_ONLY
    return not (shape.fixed_head_dim or shape.per_layer or flag_only or paired)


def _read_again(
    new: Mapping[str, Any], before: Mapping[Where, Attention], wanted: KeyValueHeads, where: str
) -> dict[Where, Attention]:
    try:
        return attentions(read_config(new, CONFIG).spec)
    except InvalidConfigError:
        for mixer in before.values():
            now = mixer.num_key_value_heads
            if isinstance(wanted, int) and now % wanted:
                raise no_fit(now, wanted, where) from None
        raise


def _check(
    heads: Mapping[Where, Heads],
    after: Mapping[Where, Attention],
    wanted: KeyValueHeads,
    where: str,
) -> None:
    """Raises unless each layer keeps its K/V heads or merges equal runs of them."""
    for place, own in heads.items():
        new = after[place]
        if own.after != new.num_key_value_heads:
            raise CannotConvertError(f"{where}: its class does not take {own.after} K/V heads")
        if own.after > own.before or (
            own.is_padded and new.num_attention_heads != own.padded_heads
        ):
            raise no_fit(own.before, own.after, where)
        if (new.head_dim, new.v_head_dim) != (own.head_dim, own.value_dim):
            raise CannotConvertError(f"{where}: the new config means another head_dim")
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


def _check_kinds(
    heads: Mapping[Where, Heads], after: Mapping[Where, Attention], where: str
) -> None:
    """transformers wants the layers of one kind to be alike, wherever it lets layers differ."""
    for slides in (False, True):
        counts = {own.after for at, own in heads.items() if bool(after[at].window) == slides}
        if len(counts) > 1:
            raise CannotConvertError(
                f"{where}: its class wants one number for all {'sliding' if slides else 'full'}"
                f" layers, not {listed(tuple(sorted(counts)))}"
            )


def no_fit(before: int, wanted: int, where: str) -> HeadCountError:
    if before == 1:
        return HeadCountError(f"{where}: has a single K/V head (MQA): no fewer are possible")
    possible = listed(divisors(before)[:-1])
    return HeadCountError(f"{where}: {_misfit(before, wanted)}; --kv-heads can be {possible}")


def _misfit(before: int, wanted: int) -> str:
    if wanted == before:
        return f"already has {before} K/V heads"
    if wanted > before:
        return f"has {before} K/V heads; {wanted} would be more"
    return f"{before} K/V heads cannot be pooled to {wanted} in equal groups"
