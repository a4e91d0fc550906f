"""The heads of every layer before and after, for a model that stays in its class.

They are read off the old config and the new one in the same way: what the class makes of the keys,
layer by layer, is what the conversion does.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.read_config import read_config
from headcount.model.decoder_attentions import attentions
from headcount.model.errors import InvalidConfigError
from headcount.model.mixers import Attention
from headcount.model.spec import ModelSpec

from ..attention_map.attention_tensors import Where
from ..plan.errors import NoSuchHomeError
from ..plan.heads import Heads, HeadsByLayer, heads_of
from ..plan.pruning import KeptHeads
from ..plan.refusals.counts import (
    check_beside,
    check_even,
    check_native,
    for_all_layers,
    no_fewer,
    no_fit,
)
from ..plan.request import KeyValueHeads
from ..plan.source import CONFIG, ConversionSource
from ..rewrite.freedom import limits_of
from .native_config import ConfigEditor

# Padding to more than so many times the query heads is no help to anybody.
_MOST_PADDING = 2


def native_heads(
    source: ConversionSource, wanted: KeyValueHeads, kept: KeptHeads
) -> tuple[HeadsByLayer, dict[str, Any], tuple[str, ...]]:
    """The heads of each attention, the new config, and what changed in it. Raises
    CannotConvertError, and HeadCountError for a number that the heads cannot be merged to."""
    before, where = source.attention_map.mixers, source.label
    wanted = for_all_layers(wanted, before, where)
    check_even(source, wanted)
    editor = ConfigEditor(source.config, str(source.folder / CONFIG))
    padded = _pruning(source, wanted, kept) if kept else _padding(source, before, wanted)
    editor.set_heads(wanted)
    if padded is not None:
        editor.set_query_heads(padded)
    spec = _read_again(editor.new, before, wanted, where, is_pruned=bool(kept))
    if padded is not None:
        check_beside(source.audit.spec, spec, padded, wanted, where)
    after = attentions(spec)
    heads = {
        place: heads_of(mixer, after[place].num_key_value_heads)
        if padded is None
        else replace(padded, kept=kept.get(place))
        for place, mixer in before.items()
    }
    check_native(heads, after, wanted, where)
    counts = {own.before for own in heads.values()}
    editor.follow({n: {own.after for own in heads.values() if own.before == n} for n in counts})
    found = HeadsByLayer(layers=heads, readers=source.attention_map.readers)
    return found, editor.new, tuple(editor.changes)


def _padding(
    source: ConversionSource, before: Mapping[Where, Attention], wanted: KeyValueHeads
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
    if not source.architecture.conversion.width_checked:
        return heads
    fitting = (
        n
        for n in range(heads.padded_heads, mixer.hidden_size + 1, wanted)
        if mixer.hidden_size % n == 0 and n <= _MOST_PADDING * heads.num_attention_heads
    )
    count = next(fitting, None)
    return None if count is None else replace(heads, query_heads=count)


def _pruning(source: ConversionSource, wanted: KeyValueHeads, kept: KeptHeads) -> Heads:
    """The heads of the first layer, where all have as many and lose as many. Raises
    CannotConvertError where the class cannot hold them."""
    before = source.attention_map.mixers
    shapes = {(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in before.values()}
    _refuse_renumbered(source)
    if not isinstance(wanted, int) or len(shapes) > 1 or not _may_be_padded(source):
        raise no_fewer(source.label)
    found = {place: heads_of(mixer, wanted, kept.get(place)) for place, mixer in before.items()}
    if len({(len(own.staying.query), own.padded_heads) for own in found.values()}) > 1:
        raise no_fewer(source.label)
    heads = next(iter(found.values()))
    mixer = next(iter(before.values()))
    if source.architecture.conversion.width_checked and mixer.hidden_size % heads.padded_heads:
        raise no_fewer(source.label)
    return heads


def _refuse_renumbered(source: ConversionSource) -> None:
    """Raises NoSuchHomeError where the class tells heads apart by their numbers, which change."""
    for limits in limits_of(source).values():
        if limits.order is not None:
            raise NoSuchHomeError(
                f"{source.label}: heads cannot get other numbers in its class: {limits.order}"
            )


def _may_be_padded(source: ConversionSource) -> bool:
    """Whether heads and head_dim are two numbers of the config, each for all layers."""
    shape = source.architecture.attention
    flag_only = shape.key_value_keys == ("multi_query",)
    limits = source.architecture.conversion
    width_is_free = not (shape.fixed_head_dim or limits.whole_width)
    return width_is_free and not (shape.per_layer or flag_only or limits.even_only)


def _read_again(
    new: Mapping[str, Any],
    before: Mapping[Where, Attention],
    wanted: KeyValueHeads,
    where: str,
    *,
    is_pruned: bool,
) -> ModelSpec:
    try:
        return read_config(new, CONFIG).spec
    except InvalidConfigError:
        if is_pruned:
            raise no_fewer(where) from None
        for mixer in before.values():
            now = mixer.num_key_value_heads
            if isinstance(wanted, int) and now % wanted:
                raise no_fit(now, wanted, where) from None
        raise
