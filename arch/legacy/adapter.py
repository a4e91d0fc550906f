"""The old tables as architectures, until every type is in its lineage's file."""

from dataclasses import replace
from functools import cache
from typing import Any

from ..architecture import Architecture, ConfigKeys
from ..attention.layers import decoder
from ..attention.shape import AttentionShape, as_query_heads, standard_key_value_heads
from ..body.body import Body
from ..tensors.names import LLAMA
from .bodies import BODIES
from .body_rows import find_body
from .convert_tables import conversion, gguf_of, rotary
from .odd import bart, falcon_key_value_heads, multi_query_heads, t5
from .row import Family
from .states_own import xlnet
from .table import FAMILIES
from .two_stacks import led, longt5, umt5
from .uncounted_reasons import REASONS as UNCOUNTED
from .wrappers import WRAPPERS

_SAME = (
    *("kinds", "qkv_bias", "k_bias", "o_bias", "norm", "norm_if", "fixed_head_dim", "other"),
    *("broadcasts_key_value", "v_head_dim", "window", "per_layer", "key_value_keys"),
    *("per_layer_key", "cached", "stack", "cross", "cross_width"),
)


@cache
def legacy_architecture(model_type: str) -> Architecture | None:
    family = FAMILIES.get(model_type)
    if family is None:
        return None
    return Architecture(
        types=(model_type,),
        config=ConfigKeys(
            aliases=family.aliases,
            defaults=family.defaults,
            read_as=family.same_as,
            text=family.text,
            fills_text=family.fills_text,
            models=family.models,
            tied=family.tied,
        ),
        attention=shape(family),
        body=_body(model_type),
        uncounted=UNCOUNTED.get(model_type),
        tensors=None if family.names is LLAMA else family.names,
        stacks=family.stacks,
        gguf=gguf_of(model_type),
        rotary=rotary(model_type),
        conversion=conversion(model_type),
    )


def shape(family: Family) -> AttentionShape:
    return AttentionShape(
        build=None if family.build is decoder else family.build,
        **{name: getattr(family, name) for name in _SAME},
        **_heads(family),
        caches="hidden states" if family.build is xlnet else "keys and values",
    )


def _heads(family: Family) -> dict[str, Any]:
    count = family.key_value_heads
    if count is as_query_heads:
        return {"kv_heads_from": "query heads"}
    if count in (multi_query_heads, falcon_key_value_heads):
        return {"kv_heads_from": "flag", "key_value_heads": count}
    if family.build in (bart, t5, led, longt5, umt5):
        return {"kv_heads_from": "query heads"}
    return {} if count is standard_key_value_heads else {"key_value_heads": count}


def _body(model_type: str) -> Any:
    found = WRAPPERS.get(model_type) or find_body(model_type)
    if isinstance(found, Body) and model_type in BODIES:
        return replace(found, named=True)
    return found
