"""Another element type for all floats: in the steps, and in the config."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

from headcount.arch.tensors.names import BUFFERS
from headcount.model.dtypes import CONFIG_NAME

from .steps import Cast, Copy, Step

CastName = Literal["bfloat16", "float16", "float32"]
CAST_NAMES: tuple[CastName, ...] = get_args(CastName)
_STORED = {name: stored for stored, name in CONFIG_NAME.items()}
_KEYS = ("dtype", "torch_dtype")
# Tables and masks that older checkpoints hold; classes make their own. "bias" is a parameter, too.
KEPT_AS_THEY_ARE = tuple(f".{name}" for name in sorted(BUFFERS - {"bias"}))


def cast_steps(steps: tuple[Step, ...], dtype: CastName | None) -> tuple[Step, ...]:
    """The steps with every float but those of buffers as `dtype`; as they are for None."""
    return steps if dtype is None else tuple(_cast(step, _STORED[dtype]) for step in steps)


def cast_config(
    config: Mapping[str, Any], dtype: CastName | None
) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The config that names `dtype` wherever it names an element type, and what changed."""
    if dtype is None:
        return config, ()
    changes: list[str] = []
    new = _renamed(config, dtype, "", changes)
    if not any(key in new for key in _KEYS):
        new["dtype"] = dtype
        changes.append(f"dtype: absent -> {dtype}")
    return new, tuple(changes)


def _cast(step: Step, dtype: str) -> Step:
    if step.dtype not in CONFIG_NAME or step.dtype == dtype or step.name.endswith(KEPT_AS_THEY_ARE):
        return step
    action = Cast() if isinstance(step.action, Copy) else step.action
    return replace(step, dtype=dtype, action=action)


def _renamed(
    config: Mapping[str, Any], dtype: str, where: str, changes: list[str]
) -> dict[str, Any]:
    new = dict(config)
    for key, value in config.items():
        if isinstance(value, dict):
            new[key] = _renamed(value, dtype, f"{where}{key}.", changes)
        elif key in _KEYS and _is_float(value) and value != dtype:
            new[key] = dtype
            changes.append(f"{where}{key}: {value} -> {dtype}")
    return new


def _is_float(value: Any) -> bool:
    return isinstance(value, str) and value.removeprefix("torch.") in _STORED
