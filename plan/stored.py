"""The bytes of quantised weights: of what the config says, or of a format that is asked for by the
name that people use for it."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from headcount.arch.formats.by_config import (
    Quantised,
    inventory_by,
    weights_by_config,
)
from headcount.arch.formats.of_configs import quantization_config, scheme_of
from headcount.arch.formats.scheme import Scheme
from headcount.arch.formats.weight_bytes import module_bytes, stored_weights
from headcount.arch.modules.module import Inventory, Module
from headcount.model.dtypes import ALIASES
from headcount.model.errors import UnsupportedModelError

from .gguf_names import mix_name
from .planned_model import PlannedModel, matrices_of

_GROUPS_OF_4 = {"bits": 4, "group_size": 128}
# What files that are called int4 or W4A16 hold: integers of linear layers with a 16-bit scale for
# each 128, and embeddings and output head as they were.
_W4A16 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True}
_W8A8 = {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": True}


def _compressed(layout: str, weights: Mapping[str, Any]) -> Mapping[str, Any]:
    """Settings of compressed-tensors for all linear layers."""
    group = {"targets": ["Linear"], "weights": weights}
    return {
        **{"quant_method": "compressed-tensors", "format": layout, "ignore": ["lm_head"]},
        "config_groups": {"group_0": group},
    }


# Names of formats -> the settings that a config has for them.
NAMED_FORMATS: Mapping[str, Mapping[str, Any]] = {
    "gptq": {"quant_method": "gptq", **_GROUPS_OF_4},
    "awq": {"quant_method": "awq", **_GROUPS_OF_4},
    "nf4": {"quant_method": "bitsandbytes", "load_in_4bit": True},
    "nvfp4": {"quant_method": "modelopt", "quant_algo": "NVFP4"},
    "mxfp4": {"quant_method": "modelopt", "quant_algo": "MXFP4"},
    "mxfp8": {"quant_method": "modelopt", "quant_algo": "MXFP8"},
    **{name: _compressed("pack-quantized", _W4A16) for name in ("int4", "w4a16")},
}
# Dtypes of 8 bits -> what an engine makes of the linear layers while it loads them.
_ON_LOADING: Mapping[str, Mapping[str, Any]] = {
    **{name: {"quant_method": "fp8"} for name in ("float8_e4m3fn", "float8_e5m2")},
    "int8": _compressed("int-quantized", _W8A8),
}


def format_settings(name: str) -> Mapping[str, Any] | None:
    """The `quantization_config` that the name of a format stands for; None for any other dtype."""
    mix = mix_name(name)
    if mix is not None and mix not in ("F16", "BF16", "F32"):
        return {"quant_method": "gguf", "mix": mix}
    return NAMED_FORMATS.get(name.lower())


def full_name(dtype: str) -> str:
    """One name for each dtype and format: `fp8` is float8_e4m3fn, `q4_k` Q4_K_M."""
    mix = mix_name(dtype)
    if mix is not None and format_settings(dtype) is not None:
        return mix
    name = dtype.lower().removeprefix("torch.")
    return ALIASES.get(name, "int4" if name == "w4a16" else name)


def stored_as(own: Mapping[str, object]) -> str | None:
    """The full name of the format that a quantization_config states; None for one that --dtype has
    no name for."""
    method, bits = str(own.get("quant_method", "modelopt")).lower(), own.get("bits", 4)
    if method in ("gptq", "awq"):
        return method if bits == 4 else None
    if method == "bitsandbytes":
        return "int8" if own.get("load_in_8bit") else "nf4"
    if method.startswith("modelopt"):
        return _ALGORITHMS.get(str(own.get("quant_algo")).upper())
    if method == "compressed-tensors":
        kinds = {_kind(group) for group in _groups(own)}
        return _COMPRESSED.get(kinds.pop()) if len(kinds) == 1 else None
    return {"fp8": "float8_e4m3fn", "fbgemm_fp8": "float8_e4m3fn", "mxfp4": "mxfp4"}.get(method)


_ALGORITHMS = {"NVFP4": "nvfp4", "MXFP4": "mxfp4", "MXFP8": "mxfp8", "FP8": "float8_e4m3fn"}
_COMPRESSED: Mapping[tuple[object, object], str] = {
    **{(4, "int"): "int4", (8, "int"): "int8", (8, "float"): "float8_e4m3fn"},
    (4, "float"): "nvfp4",
}


def _groups(own: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    groups = own.get("config_groups")
    for group in groups.values() if isinstance(groups, Mapping) else ():
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping):
            yield group["weights"]


def _kind(weights: Mapping[str, object]) -> tuple[object, object]:
    return weights.get("num_bits"), weights.get("type")


def unquantised(model: PlannedModel) -> PlannedModel | None:
    """The model as its own files are, where these are not quantised; None where they are."""
    if model.own_format is None:
        return None if quantization_config(model.config) else model
    if model.own_format:
        return None
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    return replace(model, config=config, own_format=None)


def is_stored_as(model: PlannedModel, name: str) -> bool:
    """Whether the model's own files have the dtype, or the format, `name`."""
    own = quantization_config(model.config)
    return own is not None and stored_as(own) == full_name(name)


@lru_cache(maxsize=64)
def as_format(model: PlannedModel, name: str) -> PlannedModel:
    """The model as it would be stored in the format `name`; itself for the name of a dtype, and
    where its files are stored so."""
    settings = format_settings(name)
    if settings is None or is_stored_as(model, name):
        return model
    config = {**model.config, "quantization_config": dict(settings)}
    own = quantization_config(model.config) or {}
    return replace(model, config=config, weights_bytes=None, own_format=own)


@lru_cache(maxsize=64)
def as_loaded(model: PlannedModel, dtype: str | None) -> PlannedModel:
    """The model with its linear layers in the 8 bits of `dtype`, in place of what its config says;
    itself for a wider one."""
    settings = _ON_LOADING.get(dtype or "")
    if settings is None:
        return model
    config = {**model.config, "quantization_config": dict(settings)}
    return replace(model, config=config, weights_bytes=None)


@lru_cache(maxsize=64)
def quantised(model: PlannedModel, wide_bits: int) -> Quantised | None:
    """What the model's config makes of its weights; None where it quantises nothing.

    `wide_bits` are those of what stays. Raises UnknownFormatError."""
    mix, spec = _mix(model.config), model.spec
    if mix is None:
        return weights_by_config(model.config, spec, wide_bits=wide_bits)
    assert spec.parameters is not None
    from .gguf_mixes import as_gguf, gguf_scheme  # only a GGUF file wants them

    inventory = as_gguf(inventory_by(model.config, spec, spec.parameters), spec)
    scheme = gguf_scheme(mix, inventory, spec)
    return Quantised(scheme.name, stored_weights(inventory, scheme, wide_bits=wide_bits))


class Weighed(NamedTuple):
    """Each matrix of a model with its bytes, those of layers that predict further tokens, and the
    bytes of what is no matrix: norms, biases. Files may hold a little more or less."""

    modules: tuple[tuple[Module, int], ...]
    prediction: tuple[tuple[Module, int], ...]
    others: int

    @property
    def nbytes(self) -> int:
        """Without what predicts."""
        return sum(size for _, size in self.modules) + self.others


@lru_cache(maxsize=64)
def weighed(model: PlannedModel, dtype: str | None, wide_bits: int) -> Weighed | None:
    """The matrices of `model` as loaded in `dtype`, None as they are stored; None where the config
    does not describe them. `wide_bits` are those of what is not quantised. Raises
    UnknownFormatError."""
    inventory = matrices_of(model)
    if inventory is None:
        return None
    loaded = as_loaded(model, dtype)
    is_plain = dtype is not None and loaded is model
    scheme = None if is_plain else _scheme(loaded, inventory)
    wide = (scheme.wide_bits if scheme else None) or wide_bits
    inventory = scheme.stored(inventory) if scheme else inventory
    return Weighed(
        modules=tuple(_weighed(inventory, inventory.modules, scheme, wide)),
        prediction=tuple(_weighed(inventory, inventory.prediction, scheme, wide)),
        others=inventory.others * wide // 8,
    )


def _scheme(model: PlannedModel, inventory: Inventory) -> Scheme | None:
    mix = _mix(model.config)
    if mix is None:
        return scheme_of(model.config)
    from .gguf_mixes import gguf_scheme  # only a GGUF file wants it

    return gguf_scheme(mix, inventory, model.spec)


def _weighed(
    inventory: Inventory, modules: tuple[Module, ...], scheme: Scheme | None, wide_bits: int
) -> Iterator[tuple[Module, int]]:
    if scheme is None:
        yield from ((module, module.parameters * wide_bits // 8) for module in modules)
        return
    for module, stored in module_bytes(inventory, modules, scheme, wide_bits):
        yield module, stored.nbytes


def _mix(config: Mapping[str, Any]) -> str | None:
    settings = config.get("quantization_config")
    is_gguf = isinstance(settings, Mapping) and settings.get("quant_method") == "gguf"
    return mix_name(str(settings.get("mix"))) if is_gguf and settings else None


def is_weighed(model: PlannedModel) -> bool:
    """Whether the bytes of its weights can be told at all."""
    if model.weights_bytes is not None or model.spec.parameters is None:
        return model.weights_bytes is not None
    try:
        quantised(model, 16)
    except UnsupportedModelError:
        return False
    return True
