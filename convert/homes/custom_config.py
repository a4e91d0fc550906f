"""The config of a model that is loaded by the modelling file of our own."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headcount.arch.model_classes import GROUPED_CLASS, auto_class, model_classes, tokenizer_class
from headcount.arch.our_types import GROUPED, base_type

from ..plan.heads import HeadsByLayer
from ..plan.refusals.types import no_generating_class
from ..plan.source import ConversionSource

MODULE = "modeling_headcount"
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
    architecture = _architecture(source, model_type)
    counts = [own.after for (_, cross), own in sorted(heads.layers.items()) if not cross]
    differ = built is not None or len(set(counts)) > 1
    added: dict[str, Any] = {
        "model_type": GROUPED + model_type,
        "architectures": [GROUPED_CLASS + architecture],
        "auto_map": _auto_map(model_type, architecture),
        "num_key_value_heads": max(counts) if built is None else built,
        **({"num_key_value_heads_per_layer": counts} if differ else {}),
        "grouped_projections": {path: dict(made) for path, made in projections.items()},
        **({KEPT: {str(index): list(own) for index, own in kept.items()}} if kept else {}),
    }
    tokenizer = None if old.get("tokenizer_class") else tokenizer_class(model_type)
    if tokenizer is not None:  # transformers' own table does not know the new type
        added["tokenizer_class"] = tokenizer
    said = added.get("num_key_value_heads_per_layer", max(counts))
    changes = (
        f"model_type: {old.get('model_type', 'absent')} -> {added['model_type']}",
        f"architectures: {architecture} -> {GROUPED_CLASS}{architecture}",
        f"auto_map: names {MODULE}.py, which lies beside the weights",
        f"num_key_value_heads: {old.get('num_key_value_heads', 'absent')} -> {said}",
        f"grouped_projections: {', '.join(projections)}",
        *([f"{KEPT}: of {len(kept)} layer{'s' if len(kept) > 1 else ''}"] if kept else []),
        *([f"tokenizer_class: absent -> {tokenizer}"] if tokenizer else []),
    )
    others = {key: value for key, value in old.items() if key != "num_key_value_heads_per_layer"}
    return {**deepcopy(others), **added}, changes


def _architecture(source: ConversionSource, model_type: str) -> str:
    """The class that the source was saved from, by its name in transformers."""
    given = source.config.get("architectures")
    name = given[0] if isinstance(given, list) and given else None
    if isinstance(name, str):
        return name.removeprefix(GROUPED_CLASS)
    classes = model_classes(model_type)
    heads = [name for auto, name in classes.items() if auto not in ("AutoConfig", "AutoModel")]
    if not heads:
        raise no_generating_class(source, model_type)
    return heads[-1] if source.config.get("is_encoder_decoder", True) else heads[0]


def _auto_map(model_type: str, architecture: str) -> dict[str, str]:
    """Auto class -> our class: those that transformers has for the type, and the saved one."""
    classes = model_classes(model_type)
    own = auto_class(architecture, classes)
    if own is not None:
        classes[own] = architecture
    return {auto: f"{MODULE}.{GROUPED_CLASS}{name}" for auto, name in classes.items()}
