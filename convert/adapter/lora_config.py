"""What of an adapter_config.json decides what its matrices add; the rest is refused by name.

From peft 0.21: tuners/lora/config.py, tuners/lora/layer.py (update_layer, get_delta_weight) and
get_pattern_key of utils/other.py.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from headcount.model.errors import short
from headcount.sources.checkpoint import ADAPTER_CONFIG
from headcount.sources.json_file import read_json

from ..plan.errors import CannotConvertError

V = TypeVar("V")
# Keys that say where peft looks for modules, which the names of the tensors say as well, or that
# bear on training, or on nothing.
_WITHOUT_EFFECT = {
    *("peft_type", "task_type", "auto_mapping", "base_model_name_or_path", "revision"),
    *("peft_version", "inference_mode", "target_modules", "exclude_modules", "layers_pattern"),
    *("layers_to_transform", "lora_dropout", "megatron_core", "qalora_group_size"),
    *("runtime_config", "ensure_weight_tying", "fan_in_fan_out"),
}
_READ = {"r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern"}
_NOTHING: tuple[object, ...] = (None, False, "", [], {})
# Of matrices that are trained from where the base is: others change the base, too (PiSSA, OLoRA…).
_PLAIN_STARTS = (True, False, "gaussian")


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraConfig:
    """`rank` and `alpha` are those of every module, but for what the patterns say of some."""

    path: Path
    rank: int
    alpha: float
    use_rslora: bool
    rank_pattern: Mapping[str, int]
    alpha_pattern: Mapping[str, float]

    def rank_of(self, module: str) -> int:
        return _of_pattern(self.rank_pattern, module, self.rank)

    def scaling_of(self, module: str) -> float:
        """What the product of the module's matrices is multiplied by."""
        rank = self.rank_of(module)
        alpha = _of_pattern(self.alpha_pattern, module, self.alpha)
        return alpha / (math.sqrt(rank) if self.use_rslora else rank)


def read_lora_config(folder: Path) -> LoraConfig:
    """That of the adapter in `folder`. Raises CannotConvertError for what is not plain LoRA, naming
    the key, and InvalidConfigError."""
    path = folder / ADAPTER_CONFIG
    config = read_json(path)
    if config.get("peft_type") != "LORA":
        raise _refused(path, "peft_type", config.get("peft_type"))
    for key, value in config.items():
        if key not in _READ | _WITHOUT_EFFECT and not _is_plain(key, value):
            raise _refused(path, key, value)
    return LoraConfig(
        path=path,
        rank=_positive_int(path, "r", config.get("r", 8)),
        alpha=_number(path, "lora_alpha", config.get("lora_alpha", 8)),
        use_rslora=_flag(path, "use_rslora", config.get("use_rslora", False)),
        rank_pattern={
            name: _positive_int(path, "rank_pattern", rank)
            for name, rank in _pattern(path, "rank_pattern", config).items()
        },
        alpha_pattern={
            name: _number(path, "alpha_pattern", alpha)
            for name, alpha in _pattern(path, "alpha_pattern", config).items()
        },
    )


def _is_plain(key: str, value: Any) -> bool:
    if key == "init_lora_weights":
        return any(value is start or value == start == "gaussian" for start in _PLAIN_STARTS)
    if key == "bias":
        return value in ("none", None)
    return value in _NOTHING


def _of_pattern(pattern: Mapping[str, V], module: str, default: V) -> V:
    """The value of the first key that ends the module's name, as an expression without repeats."""
    for key, value in pattern.items():
        if re.fullmatch(rf"(?:.*\.)?(?:{key})", module, re.DOTALL):
            return value
    return default


def _pattern(path: Path, name: str, config: Mapping[str, Any]) -> Mapping[str, Any]:
    pattern = config.get(name) or {}
    if not isinstance(pattern, dict):
        raise _refused(path, name, pattern)
    for key in pattern:
        # A stranger's expression could take for ever; names, and a ^ before them, cannot.
        if re.fullmatch(r"\^?[\w.]+", key) is None:
            raise _refused(path, name, key)
    return pattern


def _positive_int(path: Path, key: str, value: Any) -> int:
    if type(value) is not int or value < 1:
        raise _refused(path, key, value)
    return value


def _number(path: Path, key: str, value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise _refused(path, key, value)
    return float(value)


def _flag(path: Path, key: str, value: Any) -> bool:
    if type(value) is not bool:
        raise _refused(path, key, value)
    return value


def _refused(path: Path, key: str, value: Any) -> CannotConvertError:
    return CannotConvertError(
        f"{path}: {key} is {short(value)}, which --merge-adapter does not know: merge it with peft"
        " (merge_and_unload), and convert what that saves"
    )
