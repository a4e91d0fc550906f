"""The config of a model that is loaded by the modelling file of our own."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headcount.arch.model_classes import GROUPED_CLASS
from headcount.arch.our_types import OURS, base_type

from ..plan.heads import HeadsByLayer
from ..plan.source import ConversionSource
from .class_names import classes_of_ours
from .modeling_files import GROUPED_MODULE

# The key of the query heads that are stored, where some were pruned.
KEPT = "kept_attention_heads"


def config_of_ours(
    source: ConversionSource,
    heads: HeadsByLayer,
    built: int | None,
    projections: Mapping[str, Mapping[str, Any]],
    kept: Mapping[int, tuple[int, ...]],
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The source's config for the grouped class of its own class, and what changed in it.

    `built`: the K/V heads that a class of one number for all layers is built with; None for one
    that has as many as query heads. `projections`: module path -> what it makes, as the modelling
    file's `grouped_projections` has it. `kept`: the class's query heads that are stored, of layers
    where not all are. Raises CannotConvertError for a class that is not known to
    generate text.
    """
    old = source.config
    model_type = base_type(source.model_type)
    model_type = source.whole.config.read_as or model_type
    named = classes_of_ours(source, model_type, GROUPED_MODULE, GROUPED_CLASS)
    counts = [own.after for (_, cross), own in sorted(heads.layers.items()) if not cross]
    differ = built is not None or len(set(counts)) > 1
    added: dict[str, Any] = {
        "model_type": OURS + model_type,
        **named.added,
        "num_key_value_heads": max(counts) if built is None else built,
        **({"num_key_value_heads_per_layer": counts} if differ else {}),
        "grouped_projections": {path: dict(made) for path, made in projections.items()},
        **({KEPT: {str(index): list(own) for index, own in kept.items()}} if kept else {}),
        **named.tokenizer,
    }
    said = added.get("num_key_value_heads_per_layer", max(counts))
    changes = (
        f"model_type: {old.get('model_type', 'absent')} -> {added['model_type']}",
        *named.changes,
        f"num_key_value_heads: {old.get('num_key_value_heads', 'absent')} -> {said}",
        f"grouped_projections: {', '.join(projections)}",
        *([f"{KEPT}: of {len(kept)} layer{'s' if len(kept) > 1 else ''}"] if kept else []),
        *named.tokenizer_changes,
    )
    others = {key: value for key, value in old.items() if key != "num_key_value_heads_per_layer"}
    return {**deepcopy(others), **added}, changes
