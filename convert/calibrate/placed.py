"""Values with all of their tensors on one device."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

import torch

Value = TypeVar("Value")
CPU = torch.device("cpu")


def placed(value: Value, device: torch.device) -> Value:
    """`value`, whose tensors are on `device`: those of dataclasses, mappings, tuples and lists,
    too. What lies there already stays as it is."""
    return _placed(value, device)  # type: ignore[no-any-return]


def _placed(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, Mapping):
        return {key: _placed(one, device) for key, one in value.items()}
    if type(value) in (tuple, list):
        return type(value)(_placed(one, device) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        found = {f.name: _placed(getattr(value, f.name), device) for f in fields(value) if f.init}
        return replace(value, **found)
    return value
