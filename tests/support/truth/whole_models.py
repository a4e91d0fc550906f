"""Whole models of every type, towers included, as transformers saves them: headers without values.

A model is built on the meta device and saved by its own `save_pretrained`, so that names and shapes
are those of a real file; only the writing of the values is left out, which audits never read.
"""

import json
import struct
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion
from transformers.initialization import no_init_weights

import every_type
import state_configs
import states_truth
import tiny_truth
from headcount.arch.registry import ARCHITECTURES
from headcount.running.built.built_layers import layers_of
from random_configs import _TOWERS as TOWERS
from random_configs import Config, random_config
from tiny_truth import SCATTERED

ATTEMPTS = 12  # configs tried until one builds
_CODES = {
    **{torch.float32: "F32", torch.bfloat16: "BF16", torch.int64: "I64", torch.int32: "I32"},
    **{torch.uint8: "U8", torch.bool: "BOOL", torch.int8: "I8", torch.complex64: "C64"},
}
# The nested language model of types whose layers keep more than keys and values.
STATE_WRAPPERS = {
    **{"qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "lfm2_vl": "lfm2"},
    **{"qwen4_exp": "qwen4_exp_text", "glm5_next": "glm5_next_text", "lfm3_vl": "lfm3"},
    **{"inkling_mm_model": "inkling_text", "mistral_large4": "mistral_large4_text"},
    **{"minimax_m3_vl": "minimax_m3_vl_text", "minicpm_ocr": "qwen3_5_text"},
    **{"minicpmv4_6": "qwen3_5_text", "minicpmv4_7": "qwen3_5_text"},
    **{"nemotron_h_omni": "nemotron_h", "nemo_speechlm": "nemotron_h"},
    **{"hy_v4_vl": "hy_v4_vl_text", "unlimited_ocr": "unlimited_ocr_text"},
}
# Without these a class builds a model that it cannot run.
_RUNNABLE = {"num_key_value_heads": 2, "sliding_window": 8}
_WITHOUT = {"esmc": ("head_dim",)}


@cache
def jobs() -> tuple[tuple[str, str], ...]:
    """(model_type, task) of the mappings of language models, of types with state of their own, and
    of all rows that no mapping has, such as encoders of images and nested language models."""
    found = dict.fromkeys(every_type.jobs())
    found |= dict.fromkeys((name, "causal") for name in state_configs.TYPES)
    found |= dict.fromkeys((name, "image_text") for name in STATE_WRAPPERS)
    types = {model_type for model_type, _ in found}
    rest = (name for name in sorted(ARCHITECTURES) if name not in types and name in CONFIG_MAPPING)
    return (*found, *((name, "base") for name in rest))


def config_of(model_type: str, task: str, seed: int) -> Config:
    """A tiny config whose model runs; towers are those of the class."""
    if model_type in state_configs.TYPES:
        return state_configs.state_config(model_type, seed)
    if model_type in STATE_WRAPPERS:
        text = state_configs.state_config(STATE_WRAPPERS[model_type], seed)
        return {"model_type": model_type, "text_config": text}
    return _runnable(random_config(model_type, seed, task))


def shrunk(config: Config) -> Config:
    """The same with at most two layers in each tower."""
    if config["model_type"] in state_configs.TYPES:
        return config
    read = tiny_truth.read(config)
    _shrink(read)
    return tiny_truth.written(read)


def _runnable(values: Config) -> Config:
    declared = CONFIG_MAPPING[values["model_type"]].__dataclass_fields__
    for key, value in _RUNNABLE.items():
        if key in declared and values.get(key) is None and "kv_lora_rank" not in values:
            values[key] = value
    for key in ("layer_types", *_WITHOUT.get(values["model_type"], ())):
        values.pop(key, None)
    for nested in values.values():
        if isinstance(nested, dict) and nested.get("model_type") in CONFIG_MAPPING:
            _runnable(nested)
    return values


def _shrink(config: PreTrainedConfig) -> None:
    """At most two layers in each tower."""
    for name in type(config).sub_configs:
        nested = getattr(config, name, None)
        if not isinstance(nested, PreTrainedConfig):
            continue
        if any(tower in name for tower in TOWERS):
            for key in ("num_hidden_layers", "depth", "encoder_layers", "num_layers"):
                value = vars(nested).get(key)
                if type(value) is int:
                    setattr(nested, key, min(value, 2))
        _shrink(nested)


def build(
    config: Config, task: str, dtype: torch.dtype = torch.bfloat16, device: str = "meta"
) -> PreTrainedModel:
    """The whole model of `config` for `task`, without values."""
    read = tiny_truth.read(config)
    model_class = tiny_truth.class_of(read, task)
    read._attn_implementation = "eager"
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with torch.device(device), no_init_weights():
            model = model_class(read)
    finally:
        torch.set_default_dtype(before)
    model.tie_weights()
    assert isinstance(model, PreTrainedModel)
    return model


def save(model: PreTrainedModel, folder: Path, *, shard: str = "50GB", own: bool = True) -> None:
    """`save_pretrained`; `own=False` keeps the names that the model has in memory."""
    with (
        mock.patch(f"{_SAVING}.safe_save_file", write_headers),
        mock.patch(f"{_SAVING}.revert_weight_conversion", _revert),
    ):
        model.save_pretrained(folder, max_shard_size=shard, save_original_format=own)


_SAVING = "transformers.modeling_utils"


def _revert(model: PreTrainedModel, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Without values all views share one storage, which the index would count once."""
    return {name: t.clone() for name, t in revert_weight_conversion(model, tensors).items()}


def write_headers(
    tensors: Mapping[str, torch.Tensor],
    path: str | Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """A safetensors file of these tensors, with a hole for their values."""
    header: dict[str, Any] = {"__metadata__": dict(metadata or {})}
    end = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        header[name] = {
            "dtype": _CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [end, end + size],
        }
        end += size
    text = json.dumps(header).encode()
    with Path(path).open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + end)


_WAYS = ((True, "meta"), (False, "meta"), (False, "cpu"))


class NotBuildableError(Exception):
    """transformers builds none of the configs that were tried."""


def saved(
    model_type: str, task: str, folder: Path, *, tries: int = ATTEMPTS, **how: Any
) -> PreTrainedModel:
    """The model of the first config that builds, saved in `folder`. Raises NotBuildableError."""
    error: Exception | None = None
    for seed in range(tries):
        given = config_of(model_type, task, seed)
        # A class may insist on the depth of its tower, or compute something while it is built.
        for small, device in _WAYS if tries > 1 else _WAYS[:1]:
            try:
                model = build(shrunk(given) if small else given, task, device=device)
                save(model, folder, **how)
            except Exception as failure:
                error = failure  # a combination that the class refuses
                continue
            return model
    raise NotBuildableError(f"{model_type}: {error!r}") from error


def parameters(model: PreTrainedModel) -> int:
    """Parameters of the whole model that are saved, each shared one once."""
    left_out = model._keys_to_ignore_on_save or ()
    return sum(p.numel() for name, p in model.named_parameters() if name not in left_out)


def stored_buffers(model: PreTrainedModel) -> dict[str, int]:
    """Elements of the buffers that are saved beside the parameters."""
    saved_names = model.state_dict().keys()
    return {n: b.numel() for n, b in model.named_buffers() if n in saved_names}


def expert_parameters(model: PreTrainedModel) -> int:
    """Parameters of experts, routed and shared, by the classes and names of modules."""
    found: dict[int, int] = {}
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            words = f"{path}.{name}".lower()
            is_expert = "expert" in words or "Experts" in type(module).__name__
            if is_expert and not any(word in words for word in _NO_EXPERTS):
                found[id(parameter)] = parameter.numel()
    return sum(found.values())


_NO_EXPERTS = ("attention", "gemma_expert", "e_score_correction_bias")


def by_layer(model_type: str) -> bool:
    """Whether `attention` counts by layer, and not by module."""
    return model_type in state_configs.TYPES or model_type in STATE_WRAPPERS


def attention(model: PreTrainedModel, model_type: str, stacks: Iterable[str]) -> list[int]:
    """Attention parameters of every attention module of the language model, or of every layer of a
    model with state of its own; only those of the decoder where `stacks` names one."""
    if by_layer(model_type):
        layers = states_truth.parameters(model)
        return [layer["attention"] for layer in layers if layer["attention"]]
    only = {"decoder"} if "decoder" in stacks and "encoder" not in stacks else None
    return [
        sum(mixer.parts.values())
        for layer in layers_of(model, scattered=model.config.model_type in SCATTERED)
        for mixer in layer.mixers
        if (only is None or layer.stack in only) and mixer.parts
    ]
