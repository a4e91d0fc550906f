"""A tiny random model with few K/V heads, and the same function with every K/V head repeated.

Both are built by transformers from configs that differ in their K/V heads only. Which tensors have
K/V heads is seen by the shapes that differ: nothing here knows the converter's plan.
"""

import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

import state_configs
from random_configs import random_config
from small_towers import with_small_towers
from tiny_truth import TASKS, class_of, read
from tower_models import with_own

HEADS, KV = 8, 2  # 1 < K/V heads < heads, and no count equals the group size
LARGEST = 40_000_000  # parameters of a model that is called tiny
ATTEMPTS = 10  # configs tried for one that transformers builds and runs
TOKENS = torch.tensor([[5, 17, 33, 60, 7, 61, 42, 9, 11, 3]])

_MULTIMODAL = modeling_auto.MODEL_FOR_MULTIMODAL_LM_MAPPING
_COUNTS = ("num_key_value_heads", "num_kv_heads", "swa_num_key_value_heads")
_HEADS = (
    *("num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"),
    *("swa_num_attention_heads", "encoder_attention_heads", "decoder_attention_heads"),
)
_TEXTS = ("text_config", "thinker_config", "vlm_config", "decoder", "language_config")
# Language models whose configs do not come from the usual names of fields.
NESTED_STATES = {"qwen4_exp": "qwen4_exp_text", "inkling_mm_model": "inkling_text"}
# They do not run on text alone, or have no logits of it.
NOT_ON_TEXT = (
    *("llama4", "pi0", "qwen2_5_omni", "qwen3_omni_moe"),
    "voxtral_realtime",
)
# Their eager attention does not repeat K/V heads; transformers takes sdpa unless told otherwise.
NO_EAGER = ("unlimited_ocr",)
# Flags that a class must have set to have K/V heads at all.
_FLAGS: dict[str, dict[str, Any]] = {
    "falcon": {"new_decoder_architecture": True, "multi_query": False, "alibi": False},
    "zamba2": {"use_shared_attention_adapter": False},
}


@dataclass(frozen=True, kw_only=True)
class Pair:
    """Folders of the grouped model and of the one with repeated heads, and the class of both."""

    grouped: Path
    repeated: Path
    model_class: type[PreTrainedModel]
    kv: int
    config: dict[str, Any]


class NotBuildableError(Exception):
    """transformers builds or runs none of the configs."""


class NoGroupsError(Exception):
    """The class builds the same shapes whatever the number of K/V heads."""


def tiny_config(model_type: str, seed: int, task: str) -> dict[str, Any]:
    """A config of `model_type`, the same on every run; towers are small, too."""
    if model_type in state_configs.TYPES:
        return state_configs.state_config(model_type, seed)
    values = with_small_towers(random_config(model_type, seed, task), seed)
    if model_type in NESTED_STATES:
        values["text_config"] = state_configs.state_config(NESTED_STATES[model_type], seed)
    values = with_own(values)
    if model_type == "t5gemma2":  # both stacks have one width
        own = values["encoder"]["text_config"]["model_type"]
        values["encoder"]["text_config"] = {**values["decoder"], "model_type": own}
    return values


def with_heads(config: dict[str, Any], kv: int) -> dict[str, Any]:
    """The config with HEADS query heads and `kv` K/V heads, wherever it says so."""
    new = {**config, **_FLAGS.get(config.get("model_type", ""), {})}
    for name in _TEXTS:
        if isinstance(new.get(name), dict):
            new[name] = with_heads(new[name], kv)
    new |= {name: HEADS for name in _HEADS if name in new}
    nested = any(isinstance(new.get(name), dict) for name in _TEXTS)
    if any(name in new for name in (*_HEADS, "hidden_size")) and not nested:
        new["num_key_value_heads"] = kv
    new |= {name: kv for name in _COUNTS if name in new}
    if "multi_query" in new and "new_decoder_architecture" not in new:
        new["multi_query"] = kv == 1
    if new.get("model_type") == "falcon":
        new["num_kv_heads"] = new.pop("num_key_value_heads")
    if isinstance(new.get("attn_config"), dict):
        new["attn_config"] = {**new["attn_config"], "kv_n_heads": kv}
    for name in ("sliding_window", "attention_chunk_size"):
        if name in new or (name == "sliding_window" and "layer_types" in new):
            new[name] = new.get(name) or 8
    if new.get("num_attention_heads_per_layer"):
        new["num_attention_heads_per_layer"] = [HEADS] * len(new["num_attention_heads_per_layer"])
    if str(new.get("model_type")).startswith(("qwen3_5", "qwen4_exp")) and not nested:
        new["num_hidden_layers"] = 4  # the fourth is the first with attention
    if new.get("model_type") == "diffllama":
        new["num_key_value_heads"] = max(kv, 2)
    return new


def build_pair(
    model_type: str, task: str, folder: Path, *, dtype: str = "float32", **sizes: int
) -> Pair:
    """Saves both models under `folder`, from the first config that transformers builds and runs;
    `sizes` stand in it whatever they were. Raises NoGroupsError, and NotBuildableError."""
    error: Exception | None = None
    for seed in range(ATTEMPTS):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            return _pair(model_type, task, folder, dtype, seed, sizes)
        except NoGroupsError:
            raise
        except Exception as failure:
            error = failure  # a combination that the class refuses, or cannot run
    raise NotBuildableError(f"{model_type}: {type(error).__name__}: {error}") from error


def _pair(
    model_type: str, task: str, folder: Path, dtype: str, seed: int, sizes: dict[str, int]
) -> Pair:
    base = tiny_config(model_type, seed, task) | sizes
    kv = 1 if model_type == "gpt_bigcode" else KV
    most = 4 if model_type == "mimo_v2_flash" else HEADS  # its sliding layers have twice as many
    grouped = saved(with_heads(base, kv), task, folder / "grouped", dtype)
    repeated = saved(with_heads(base, most), task, folder / "repeated", dtype)
    small = _tensors(folder / "grouped")
    large = _tensors(folder / "repeated")
    if {k: t.shape for k, t in small.items()} == {k: t.shape for k, t in large.items()}:
        raise NoGroupsError(model_type)
    if model_type not in NOT_ON_TEXT:
        logits(repeated, repeated.dtype)
    made = {
        new: value
        for name, tensor in small.items()
        for new, value in _repeat(name, tensor, large, grouped.config, kv, most // kv)
    }
    assert made.keys() == large.keys()
    assert all(made[name].shape == large[name].shape for name in made)
    save_file(made, folder / "repeated" / "model.safetensors", metadata={"format": "pt"})
    return Pair(
        grouped=folder / "grouped",
        repeated=folder / "repeated",
        model_class=type(repeated),
        kv=kv,
        config=with_heads(base, kv),
    )


def precision(model_type: str) -> torch.dtype:
    """That in which a type is compared: a router may read float32 whatever the weights are."""
    return torch.float32 if model_type.startswith("inkling2") else torch.float64


def load(pair: Pair, folder: Path) -> PreTrainedModel:
    """Whole: no weight missing, left over or of another shape."""
    attention = "eager" if pair.config["model_type"] not in NO_EAGER else "sdpa"
    options: dict[str, Any] = {
        "dtype": precision(pair.config["model_type"]),
        "attn_implementation": attention,
        "output_loading_info": True,
    }
    try:
        model, info = pair.model_class.from_pretrained(
            folder, experts_implementation="eager", **options
        )
    except (TypeError, ValueError):  # a class without experts
        model, info = pair.model_class.from_pretrained(folder, **options)
    assert not any(info.values()), info
    return model.eval()


def logits(model: PreTrainedModel, dtype: torch.dtype) -> torch.Tensor:
    """The logits of a few tokens; an encoder-decoder reads them on both sides."""
    inputs = {"input_ids": tokens(model)}
    if model.config.is_encoder_decoder:
        inputs["decoder_input_ids"] = TOKENS[:, :5]
    with torch.no_grad():
        return torch.as_tensor(model.to(dtype)(**inputs).logits)


def tokens(model: PreTrainedModel) -> torch.Tensor:
    """One sequence; Kyutai's model reads several codebooks of it."""
    books = 1 if model.config.model_type != "kyutai_speech_to_text" else model.config.num_codebooks
    return TOKENS if books == 1 else TOKENS[..., None].expand(-1, -1, books + 1)


def _class_of(config: Any, task: str) -> Any:
    """That of the mapping of multimodal models where the one of images and text has none."""
    is_known = type(config) in TASKS[task] or type(config) not in _MULTIMODAL
    return class_of(config, task) if is_known else _MULTIMODAL[type(config)]


def saved(values: dict[str, Any], task: str, folder: Path, dtype: str) -> PreTrainedModel:
    config = read(values)
    config._attn_implementation = "eager"
    model_class: type[PreTrainedModel] = _class_of(config, task)
    with torch.device("meta"):
        count = sum(parameter.numel() for parameter in model_class(config).parameters())
    if count > LARGEST:
        raise ValueError(f"{count:,} parameters are not tiny")
    torch.manual_seed(0)
    model = model_class(config).eval()
    for name, parameter in model.named_parameters():
        if parameter.is_floating_point() and "norm" not in name.lower():
            parameter.data.normal_(std=0.3 if parameter.dim() < 3 else 0.1)
        elif parameter.is_floating_point():
            parameter.data.uniform_(0.5, 1.5)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="10GB")
    return model


def _tensors(folder: Path) -> dict[str, torch.Tensor]:
    return dict(load_file(folder / "model.safetensors"))


def _repeat(
    name: str,
    tensor: torch.Tensor,
    large: dict[str, torch.Tensor],
    config: Any,
    kv: int,
    times: int,
) -> list[tuple[str, torch.Tensor]]:
    """The tensors of the larger model that a tensor of the smaller one becomes."""
    numbered = re.search(r"(k_layernorm\.norms\.)(\d+)", name)
    if numbered:
        first = int(numbered[2]) * times
        return [
            (name.replace(numbered[0], f"{numbered[1]}{first + i}"), tensor.clone())
            for i in range(times)
        ]
    wanted = large[name].shape
    if tensor.shape == wanted:
        return [(name, tensor)]
    axis = next(i for i, size in enumerate(tensor.shape) if size != wanted[i])
    if wanted[axis] == tensor.shape[axis] * times:
        heads = _heads_in(tensor, name, config, kv)
        return [(name, _times(tensor.movedim(axis, 0), heads, times).movedim(0, axis).contiguous())]
    return [(name, _repeat_fused(tensor, wanted[0], config.model_type, kv, times))]


def _heads_in(tensor: torch.Tensor, name: str, config: Any, kv: int) -> int:
    """MiMo's layers differ: there the width of a head tells how many there are."""
    if config.model_type != "mimo_v2_flash":
        return kv
    return int(tensor.shape[0] // (config.v_head_dim if "v_proj" in name else config.head_dim))


def _times(tensor: torch.Tensor, heads: int, times: int) -> torch.Tensor:
    grouped = tensor.reshape(heads, -1, *tensor.shape[1:])
    return grouped.repeat_interleave(times, 0).reshape(-1, *tensor.shape[1:]).contiguous()


def _repeat_fused(
    tensor: torch.Tensor, wanted: int, model_type: str, kv: int, times: int
) -> torch.Tensor:
    """q, k and v in one tensor: the rows that are too few are those of k and v."""
    d = (wanted - tensor.shape[0]) // (2 * kv * (times - 1))
    rest = tensor.shape[1:]
    if model_type == "falcon":  # each K/V head after its query heads
        groups = tensor.reshape(kv, -1, d, *rest)
        query = groups[:, :-2].reshape(kv * times, -1, d, *rest)
        pairs = groups[:, -2:].repeat_interleave(times, 0)
        return torch.cat([query, pairs], dim=1).reshape(wanted, *rest).contiguous()
    query, key, value = tensor.split([tensor.shape[0] - 2 * kv * d, kv * d, kv * d])
    key, value = _times(key, kv, times), _times(value, kv, times)
    if model_type == "gpt_bigcode":  # with multi_query off, q, k and v of each head in turn
        parts = [part.reshape(HEADS, d, *rest) for part in (query, key, value)]
        return torch.cat(parts, dim=1).reshape(wanted, *rest).contiguous()
    return torch.cat([query, key, value]).contiguous()


def config_of(folder: Path) -> Any:
    """The config as transformers reads it."""
    values = AutoConfig.from_pretrained(folder).to_dict()
    return {key: value for key, value in values.items() if key != "_name_or_path"}
