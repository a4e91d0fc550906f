"""Rows for types that nobody described: read by the standard names, and marked as assumed."""

from collections.abc import Mapping
from typing import Any

from .class_defaults import class_defaults
from .row import Family
from .rows.patterns import LLAMA, MLA, WRAPPER

# Words in config keys of layers that are not attention, which the standard names do not describe.
_OTHER_STATE = ("mamba", "ssm", "state_size", "rwkv", "linear_attn", "linear_key", "conv_kernel")


def assumed_family(model_type: str, config: Mapping[str, Any]) -> Family | None:
    """The Llama row, or that of latent attention or of a nested language model where `config` has
    their keys. None for a type that transformers has a class for, since that class says more than
    the names do, and for one whose keys speak of recurrent layers."""
    if class_defaults(model_type) is not None:
        return None
    if any(word in key for key in config for word in _OTHER_STATE):
        return None
    if isinstance(config.get("text_config"), dict):
        return WRAPPER
    return MLA if config.get("kv_lora_rank") is not None else LLAMA
