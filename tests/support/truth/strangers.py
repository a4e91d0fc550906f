"""Configs of known types under a name that nobody knows."""

from collections.abc import Mapping
from typing import Any


def renamed(config: Mapping[str, Any]) -> dict[str, Any]:
    """`config` and all that it nests with a model_type that no lineage and no library has."""
    inner = {key: renamed(value) for key, value in config.items() if isinstance(value, dict)}
    name = {"model_type": "stranger"} if "model_type" in config else {}
    return {**config, **inner, **name}
