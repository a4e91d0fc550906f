"""The config of the class that a model moves to."""

import json
from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

from headcount.arch.rehoming.rehome import OldConfig, Rehome

from ..plan.heads import Heads
from ..plan.refusals.types import no_counterpart
from ..plan.source import ConversionSource


def rehomed_config(
    row: Rehome, source: ConversionSource, heads: Heads
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The new config, and every key that was changed, added or dropped.

    Keys that `row` does not know are kept as they are. Raises CannotConvertError for an
    architecture without a counterpart.
    """
    old = source.config
    kept = deepcopy({key: value for key, value in old.items() if key not in row.gone})
    head = {
        "model_type": row.target,
        "architectures": [architecture(row, source)],
        "num_attention_heads": heads.num_attention_heads,
        "num_key_value_heads": heads.after,
    }
    read = OldConfig(old, source.model_type, row.defaults)
    made = {**head, **row.config(read, heads.num_attention_heads, heads.head_dim)}
    if "n_head" in made or "n_head" in kept:  # the class's own name of it
        del made["num_attention_heads"]
    new = {**kept, **made}
    return new, tuple(_changes(old, new, row.target))


def architecture(row: Rehome, source: ConversionSource) -> str:
    """The class that takes the place of the one that the source names."""
    given = source.config.get("architectures") or [next(iter(row.classes))]
    name = given[0] if isinstance(given, list) else given
    if name not in row.classes:
        raise no_counterpart(source, str(name), row.target)
    return row.classes[name]


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], target: str) -> Iterator[str]:
    for key in (*new, *(key for key in old if key not in new)):
        if key not in new:
            yield f"{key}: {_value(old, key)} -> dropped (it means nothing to {target})"
        elif key not in old or old[key] != new[key]:
            yield f"{key}: {_value(old, key)} -> {_value(new, key)}"


def _value(config: Mapping[str, Any], key: str) -> str:
    return json.dumps(config[key]).strip('"') if key in config else "absent"
