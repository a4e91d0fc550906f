"""Towers of multimodal configs, as small as the language model beside them."""

import random
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from random_configs import _TOWERS, _nested  # the fields of a tower go by the same names


def with_small_towers(values: dict[str, Any], seed: int) -> dict[str, Any]:
    """`values` with a small config for every tower that it leaves to its class's default."""
    config_class = CONFIG_MAPPING[values["model_type"]]
    if not config_class.sub_configs:
        return values
    values = {
        name: with_small_towers(value, seed) if _is_config(value) else value
        for name, value in values.items()
    }
    chosen = random.Random(f"{values['model_type']} towers {seed}")
    config = config_class()
    found = {
        name: _nested(config, name, chosen)
        for name in config_class.sub_configs
        if name not in values and any(tower in name for tower in _TOWERS)
        if isinstance(getattr(config, name, None), PreTrainedConfig)
    }
    return {**values, **found}


def _is_config(value: Any) -> bool:
    return isinstance(value, dict) and value.get("model_type") in CONFIG_MAPPING
