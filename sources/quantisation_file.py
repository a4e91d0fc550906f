"""Settings of a quantisation that a tool wrote beside config.json instead of into it."""

from collections.abc import Callable, Mapping
from typing import Any

# The file -> the quant_method that transformers calls what its tool writes.
_METHODS = {
    "hf_quant_config.json": "modelopt",  # TensorRT Model Optimizer
    "quantize_config.json": "gptq",  # AutoGPTQ
    "quant_config.json": "awq",  # AutoAWQ
}
SETTINGS_FILES = tuple(_METHODS)
_IN_CONFIG = ("quantization_config", "compression_config", "quantization")


def settings_file(names: frozenset[str]) -> str | None:
    """The file among `names` that holds such settings."""
    return next((name for name in _METHODS if name in names), None)


def with_settings(
    config: dict[str, Any], name: str | None, read: Callable[[str], Mapping[str, Any]]
) -> dict[str, Any]:
    """`config` with the settings of the file `name` as its quantization_config, unless it has its
    own."""
    text = config.get("text_config")
    holders = (config, text if isinstance(text, Mapping) else {})
    if name is None or any(holder.get(key) for holder in holders for key in _IN_CONFIG):
        return config
    found = read(name)
    inner = found.get("quantization")
    settings = inner if isinstance(inner, Mapping) else found
    return {**config, "quantization_config": {"quant_method": _METHODS[name], **settings}}
