"""The spec of a config alone, with its parameters counted."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from headcount.arch.read_config import read_config
from headcount.model.spec import ModelSpec


def read_spec(config: Mapping[str, Any], where: str) -> ModelSpec:
    """Raises what `read_config` and the count of parameters raise."""
    reading = read_config(config, where)
    count, unknown = reading.total()
    source = None if count is None else "config"
    return replace(
        reading.spec, parameters=count, parameters_source=source, parameters_unknown=unknown
    )
