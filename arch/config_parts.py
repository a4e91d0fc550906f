"""What a config says that a model has beside dense layers of text: experts, and towers."""

from collections.abc import Iterator, Mapping
from typing import Any

from .class_defaults import class_defaults

_EXPERT_COUNTS = (
    *("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"),
    *("moe_num_primary_experts", "num_moe_experts"),
)
_TOWERS = ("vision_config", "audio_config", "thinker_config", "vision_tower")


def has_tower(config: Mapping[str, Any]) -> bool:
    """Whether an encoder of images or sound stands beside the language model."""
    return any(isinstance(config.get(name), Mapping) for name in _TOWERS)


def has_experts(config: Mapping[str, Any], model_type: str) -> bool:
    """Whether a layer of the model, or of one that it nests, may choose among experts; a count that
    is left out is that of the class."""
    return any(
        _may_be_several(holder.get(name))
        for holder in whole_configs(config, model_type)
        for name in _EXPERT_COUNTS
    )


def whole_configs(config: Mapping[str, Any], model_type: object) -> Iterator[Mapping[str, Any]]:
    """`config` and those that it nests, each over the defaults of its class."""
    known = class_defaults(model_type) if isinstance(model_type, str) else None
    whole = {**(known.defaults if known else {}), **config}
    yield whole
    for name, value in whole.items():
        if name.endswith("_config") and isinstance(value, Mapping):
            yield from whole_configs(value, value.get("model_type"))


def _may_be_several(count: object) -> bool:
    """Some configs give a list with one count per layer (Hunyuan). What is no number leaves the
    count open."""
    if isinstance(count, list):
        return any(_may_be_several(each) for each in count)
    return count > 1 if isinstance(count, (int, float)) else bool(count)
