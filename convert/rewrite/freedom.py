"""What may be changed in each attention of a source without a change of its function.

What stands between the projections and the scores, or behind them, is told by the tensors beside
them and by the type. Where that is not known nothing is free but what is certain.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.audit.family.resolve import read_config

from ..merge.attention import Freedom
from ..plan.draft import Where
from ..plan.native import KEY_NORMS, QUERY_NORMS
from ..plan.source import CONFIG, Source
from .beside import VALUE_NORMS, Beside
from .rotary import rotated_rows, text_type
from .tensors import AttentionTensors, attention_tensors

# Modules beside the projections that stand in the way of nothing: sinks, a bias of what o gives.
HARMLESS = ("dense_bias", "sinks", "attention_sink_bias", "softmax_offset")
# Modules that add to the scores of each head, for all layers of a stack in T5.
SCORE_BIASES = ("relative_attention_bias", "relative_pos_embeddings")
# Keys of a config that clamp what the projections give.
CLIPPING = ("clip_qkv", "attn_config.clip_qkv")
# What types do by no tensor of their own: the key of the config that turns it on, True for always.
NORMED_KEYS: Mapping[str, str | bool] = {}
ALIBI: Mapping[str, str | bool] = {}
VALUES_CHANGED: Mapping[str, str | bool] = {}
HEADS_TOLD_APART: Mapping[str, str | bool] = {}
_ALL = ("keys", "values", "order")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Why keys, values and the order of heads are not free; None: they are."""

    keys: str | None
    values: str | None
    order: str | None


def freedom_of(source: Source, where: Where) -> Freedom:
    """The freedom of one attention. Raises CannotConvertError, see `attention_tensors`."""
    return freedoms_of(source, attention_tensors(source))[where]


def freedoms_of(source: Source, tensors: Mapping[Where, AttentionTensors]) -> dict[Where, Freedom]:
    """The freedom of every attention."""
    return {where: _freedom(source, one) for where, one in tensors.items()}


def limits_of(source: Source, tensors: AttentionTensors) -> Limits:
    """The first reason for each that is not free."""
    found: dict[str, str] = {}
    for what, reason in _reasons(source, tensors):
        for one in what:
            found.setdefault(one, reason)
    return Limits(**{one: found.get(one) for one in _ALL})


def _freedom(source: Source, tensors: AttentionTensors) -> Freedom:
    limits = limits_of(source, tensors)
    rows = None if tensors.where[1] else rotated_rows(source, tensors.mixer.head_dim)
    real, imaginary = rows or ((), ())
    return Freedom(
        real=real,
        imaginary=imaginary,
        keys=limits.keys is None,
        values=limits.values is None,
        order=limits.order is None,
        key_bias=tensors.has_bias("k"),
        output_bias=tensors.has_bias("o"),
    )


def _reasons(source: Source, tensors: AttentionTensors) -> Iterator[tuple[tuple[str, ...], str]]:
    """(what is not free, why), in the order in which they are said."""
    layer, cross = tensors.where
    yield from _by_modules(tensors)
    yield from _by_type(source, tensors)
    if any(one.shares_cache_with == layer for one in source.audit.spec.layers):
        yield _ALL, "another layer reads its keys and values"
    if not tensors.mixer.has_value:
        yield ("keys", "values"), "its values are its keys"
    if any("g" in projection.parts for projection in tensors.projections):
        yield ("values",), "a gate stands between its values and o"
    if not cross and rotated_rows(source, tensors.mixer.head_dim) is None:
        yield ("keys",), "it is not known which rows of its heads rotate together"
    if not cross and any(word in m for m in source.audit.family.names.modules for word in _BIASED):
        yield ("order",), "its heads have biases of their own"


_BIASED = SCORE_BIASES[:1]  # stands in the first layer only


def _by_modules(tensors: AttentionTensors) -> Iterator[tuple[tuple[str, ...], str]]:
    known = {item.module: item for item in tensors.beside}
    for module in tensors.modules:
        words = module.split(".")
        if any(word in SCORE_BIASES for word in words):
            yield ("order",), f"{module} is a bias of each head"
        elif any(word in VALUE_NORMS for word in words):
            yield ("values",), f"{module} norms its values"
        elif any(word in (*KEY_NORMS, *QUERY_NORMS) for word in words):
            yield ("keys",), f"{module} norms its keys or queries"
        elif not any(word in HARMLESS for word in words):
            yield _between(module, known.get(module), tensors)
        if module in tensors.unknown:
            yield ("order",), f"it is not known how heads lie in {module}"


def _between(
    module: str, item: Beside | None, tensors: AttentionTensors
) -> tuple[tuple[str, ...], str]:
    """What a module that is not named here may stand in the way of."""
    if item is None:
        return _ALL, f"it is not known what {module} does"
    if item.tied:
        return ("keys", "values"), f"{module} stands behind its keys or values"
    if item.layout.blocks[0].rows == 1:  # one gate for a whole head
        return (), ""
    return ("values",), f"{module} is a gate between its values and o"


def _by_type(source: Source, tensors: AttentionTensors) -> Iterator[tuple[tuple[str, ...], str]]:
    if any(_value(source, key) is not None for key in CLIPPING):
        yield ("keys", "values"), "clip_qkv clamps its queries, keys and values"
    if _is_on(source, NORMED_KEYS):
        yield ("keys",), "its queries and keys are normed"
    if _is_on(source, VALUES_CHANGED):
        yield ("values",), "its values are not only mixed"
    if _is_on(source, ALIBI) and not tensors.where[1]:
        yield ("order",), "ALiBi: each query head has a slope of its own"
    if _is_on(source, HEADS_TOLD_APART):
        yield ("order",), "its heads are told apart by their numbers"


def _is_on(source: Source, types: Mapping[str, str | bool]) -> bool:
    key = types.get(text_type(source), False)
    return bool(_value(source, key)) if isinstance(key, str) else key


def _value(source: Source, key: str) -> Any:
    """The value of a key of the language model's config, or of an object in it."""
    outer, _, last = key.rpartition(".")
    view = read_config(source.config, CONFIG).text
    if not outer:
        return view.get(last)
    nested = view.get(outer)
    return nested.get(last) if isinstance(nested, dict) else None
