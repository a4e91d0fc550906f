"""What may be changed in each attention of a source without a change of its function.

What stands between the projections and the scores, or behind them, is told by the tensors beside
them and by the type. Where that is not known nothing is free but what is certain.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from headcount.arch.read_config import read_config

from ..attention_map.attention_tensors import AttentionTensors, HeadTensors, Where
from ..attention_map.layouts import KEY_NORMS, QUERY_NORMS, SCORE_TABLE, VALUE_NORMS, has_word
from ..merge.freedom import Freedom
from ..plan.heads import HeadsByLayer
from ..plan.source import CONFIG, ConversionSource
from .rotary import config_as_read, rotated_rows
from .tables import alike, tables_read

# Modules beside the projections that stand in the way of nothing: sinks, a bias of what o gives.
HARMLESS = ("dense_bias", "sinks", "attention_sink_bias", "softmax_offset")
OUTPUT_BIASES = HARMLESS[:1]
# Modules that add to the scores of each head.
SCORE_BIASES = (SCORE_TABLE, "relative_pos_embeddings")
# Keys of a config that clamp what the projections give.
CLIPPING = ("clip_qkv", "attn_config.clip_qkv")
_ALL = ("keys", "values", "order")
_Reasons = Iterator[tuple[tuple[str, ...], str]]


@dataclass(frozen=True, kw_only=True, slots=True)
class NotFree:
    """Why keys, values and the order of heads are not free; None: they are."""

    keys: str | None
    values: str | None
    order: str | None


def alone(freedom: Freedom) -> Freedom:
    """The freedom of an attention by itself: where others must change their order with it, it
    keeps its own."""
    return replace(freedom, order=freedom.order and freedom.order_set is None, order_set=None)


def freedoms_of(
    source: ConversionSource, heads: HeadsByLayer | None = None
) -> dict[Where, Freedom]:
    """The freedom of every attention. `heads` are what each is to get: attentions that must change
    their order together can, if they get as many. None: they do."""
    facts = _Facts(source, heads)
    return {where: _freedom(facts, one) for where, one in facts.attentions.items()}


def limits_of(source: ConversionSource, heads: HeadsByLayer | None = None) -> dict[Where, NotFree]:
    """What is not free in every attention, as in `freedoms_of`."""
    facts = _Facts(source, heads)
    return {where: _limits(facts, one) for where, one in facts.attentions.items()}


class _Facts:
    """What the config says of all attentions, and what these have in common."""

    def __init__(self, source: ConversionSource, heads: HeadsByLayer | None) -> None:
        self.source = source
        self.attentions = source.attention_map.attentions
        self.read_by_others = set(source.attention_map.readers.values())
        modules = source.architecture.names.modules
        self.has_tables = any(has_word(module, (SCORE_TABLE,)) for module in modules)
        self._text = read_config(source.config, CONFIG).text
        self._tables = tables_read(self.attentions.values()) if self.has_tables else {}
        self._heads = heads
        self.conversion = source.architecture.conversion

    def table(self, layer: int) -> int | None:
        """The layer whose table of score biases the self-attention of `layer` reads, if known."""
        return self._tables.get(layer)

    def table_readers(self, layer: int) -> list[int]:
        """The layers that read the same table."""
        table = self.table(layer)
        return [reader for reader, read in self._tables.items() if read == table]

    def get_as_many(self, layers: list[int]) -> bool:
        """Whether the self-attentions of all `layers` get the same number of K/V heads."""
        return self._heads is None or alike(self._heads, layers)

    @cached_property
    def config(self) -> dict[str, Any] | None:
        return config_as_read(self.source)

    def is_on(self, key: str | bool) -> bool:
        """Of what the type always does (True), or does where a key of its config says so."""
        return bool(self.value(key)) if isinstance(key, str) else key

    def value(self, key: str) -> Any:
        """The value of a key of the language model's config, or of an object in it."""
        outer, _, last = key.rpartition(".")
        if not outer:
            return self._text.get(last)
        nested = self._text.get(outer)
        return nested.get(last) if isinstance(nested, dict) else None


def _limits(facts: _Facts, tensors: AttentionTensors) -> NotFree:
    """The first reason for each that is not free."""
    found: dict[str, str] = {}
    for what, reason in _reasons(facts, tensors):
        for one in what:
            found.setdefault(one, reason)
    return NotFree(**{one: found.get(one) for one in _ALL})


def _freedom(facts: _Facts, tensors: AttentionTensors) -> Freedom:
    limits = _limits(facts, tensors)
    real, imaginary = _rows(facts, tensors) or ((), ())
    return Freedom(
        real=real,
        imaginary=imaginary,
        keys=limits.keys is None,
        values=limits.values is None,
        order=limits.order is None,
        order_set=_order_set(facts, tensors.where) if limits.order is None else None,
        key_bias=tensors.has_bias("k"),
        output_bias=tensors.has_bias("o"),
        head_norms=facts.is_on(facts.conversion.norms_keys) or _norms_heads(tensors),
    )


def _order_set(facts: _Facts, where: Where) -> int | None:
    layer, cross = where
    if cross or not facts.has_tables or facts.table_readers(layer) == [layer]:
        return None
    return facts.table(layer)


def _norms_heads(tensors: AttentionTensors) -> bool:
    """Whether a norm stands behind k that is over one head at a time."""
    norms = [one for one in tensors.others if has_word(one.module, KEY_NORMS)]
    d = tensors.mixer.head_dim
    return bool(norms) and all(not one.parts or one.tensor.shape[-1] == d for one in norms)


def _rows(
    facts: _Facts, tensors: AttentionTensors
) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The rows that rotate: none in cross-attention, where no two positions are compared."""
    if tensors.where[1]:
        return (), ()
    rotary = facts.source.architecture.rotary
    config = None if rotary == "none" else facts.config
    return rotated_rows(rotary, config, tensors.mixer.head_dim)


def _reasons(facts: _Facts, tensors: AttentionTensors) -> _Reasons:
    """(what is not free, why), in the order in which they are said."""
    layer, cross = tensors.where
    yield from _by_modules(tensors)
    yield from _by_type(facts)
    if layer in facts.read_by_others:
        yield _ALL, "another layer reads its keys and values"
    if not tensors.mixer.has_value:
        yield ("keys", "values"), "its values are its keys"
    if any("g" in projection.parts for projection in tensors.projections):
        yield ("values",), "a gate stands between its values and o"
    if _rows(facts, tensors) is None:
        yield ("keys",), "it is not known which rows of its heads rotate together"
    if not cross and facts.has_tables:
        yield from _by_table(facts, layer)
    if not cross and facts.is_on(facts.conversion.alibi):
        yield ("order",), "ALiBi: each query head has a slope of its own"


def _by_table(facts: _Facts, layer: int) -> _Reasons:
    """Heads change places with their columns of a table, which other layers may read, too."""
    table = facts.table(layer)
    if table is None:
        yield ("order",), f"it is not known which {SCORE_TABLE} is added to its scores"
    elif not facts.get_as_many(facts.table_readers(layer)):
        yield (
            ("order",),
            f"its {SCORE_TABLE} is for all layers, which do not all get as many K/V heads",
        )


def _by_type(facts: _Facts) -> _Reasons:
    if any(facts.value(key) is not None for key in CLIPPING):
        yield ("keys", "values"), "clip_qkv clamps its queries, keys and values"
    if facts.is_on(facts.conversion.norms_keys):
        yield ("keys",), "its queries and keys are normed"
    if facts.is_on(facts.conversion.changes_values):
        yield ("values",), "its values are not only mixed"
    if facts.is_on(facts.conversion.numbers_heads):
        yield ("order",), "its heads are told apart by their numbers"


def _by_modules(tensors: AttentionTensors) -> _Reasons:
    by_module: dict[str, list[HeadTensors]] = {}
    for one in tensors.others:
        by_module.setdefault(one.module, []).append(one)
    for module, held in by_module.items():
        known = next((one for one in reversed(held) if one.parts), None)
        if has_word(module, SCORE_BIASES):
            if known is None:
                yield ("order",), f"{module} is a bias of each head"
        elif has_word(module, VALUE_NORMS):
            yield ("values",), f"{module} norms its values"
        elif has_word(module, (*KEY_NORMS, *QUERY_NORMS)):
            yield ("keys",), f"{module} norms its keys or queries"
        elif not has_word(module, HARMLESS):
            yield _between(module, known)
        unknown = any(one.layout is None for one in held)
        if unknown and module.rpartition(".")[2] not in OUTPUT_BIASES:
            yield ("order",), f"it is not known how heads lie in {module}"


def _between(module: str, item: HeadTensors | None) -> tuple[tuple[str, ...], str]:
    """What a module that is not named here may stand in the way of."""
    if item is None:
        return _ALL, f"it is not known what {module} does"
    if item.has_key_value:
        return ("keys", "values"), f"{module} stands behind its keys or values"
    if item.blocks.blocks[0].rows == 1:  # one gate for a whole head
        return (), ""
    return ("values",), f"{module} is a gate between its values and o"
