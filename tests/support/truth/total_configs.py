"""Small random configs that also vary what lies outside attention: widths, experts, flags, towers.

They start from those of `random_configs` and `state_configs`, and are built on the meta device.
"""

import math
import random
import re
from collections.abc import Iterator
from typing import Any

import torch
from transformers import CONFIG_MAPPING, PreTrainedConfig, PreTrainedModel
from transformers.initialization import no_init_weights

import random_configs
import state_configs
from every_type import jobs
from headcount.arch.read_config import read_config
from headcount.model.errors import HeadcountError
from random_configs import Config, random_config
from tiny_truth import TASKS, class_of, read

ATTEMPTS = 80
_MORE: dict[str, tuple[Any, ...]] = {
    "vocab_size": (97, 130),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "encoder_ffn_dim"),
        (48, 56, 80),
    ),
    **dict.fromkeys(("decoder_ffn_dim", "d_inner", "dim_ff", "hidden_dim"), (48, 56, 80)),
    **dict.fromkeys(("moe_intermediate_size", "shared_intermediate_size"), (16, 20, 28)),
    **dict.fromkeys(("intermediate_size_mlp", "shared_expert_intermediate_size"), (16, 20, 28)),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), (4, 6, 8)),
    **dict.fromkeys(("num_experts_per_tok", "moe_topk", "moe_k", "moe_top_k"), (1, 2, 3)),
    **dict.fromkeys(("n_shared_experts", "num_shared_experts"), (1, 2)),
    **dict.fromkeys(("first_k_dense_replace", "num_dense_layers"), (0, 1, 2)),
    **dict.fromkeys(("decoder_sparse_step", "moe_layer_interval"), (1, 2)),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), (64, 72, 80)),
    "type_vocab_size": (1, 2, 3),
    "mlp_only_layers": ([], [0], [1]),
    "mlp_layer_types": (),
}
_TOWER: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("hidden_size", "embed_dim", "d_model"), (32, 48)),
    **dict.fromkeys(("num_hidden_layers", "depth", "encoder_layers"), (1, 2, 3)),
    **dict.fromkeys(("num_attention_heads", "num_heads", "encoder_attention_heads"), (2, 4)),
    **dict.fromkeys(("intermediate_size", "encoder_ffn_dim"), (40, 56)),
    "out_hidden_size": (20, 28),
    "num_mel_bins": (16, 20),
}
# Flags that say how a model runs, not what it holds.
_RUNNING = {"use_cache", "is_decoder", "add_cross_attention", "is_encoder_decoder", "return_dict"}
_RUNNING |= {"output_attentions", "output_hidden_states", "output_router_logits"}
_RUNNING |= {"tie_word_embeddings", "use_sliding_window", "use_mamba_kernels"}

_OWN_HEAD_DIM = ("esmc", "cosmos3_edge_text")  # no other one runs


def build(config: Config, seed: int) -> PreTrainedModel:
    """The model of `config` on the meta device: three times of four that with a head. The name of
    its class is written to `config`."""
    parsed = read(config)
    model_class = class_of(parsed, "base" if seed % 4 == 3 else _task(config["model_type"]))
    parsed._attn_implementation = "eager"
    with torch.device("meta"), no_init_weights():
        model = model_class(parsed)
    model.tie_weights()
    config["architectures"] = [model_class.__name__]
    assert isinstance(model, PreTrainedModel)
    return model


def models(model_type: str, count: int) -> Iterator[tuple[int, Config, PreTrainedModel]]:
    """`count` seeds, configs that transformers builds and an audit accepts, and their models."""
    found = 0
    for seed in range(ATTEMPTS):
        config = total_config(model_type, seed)
        try:
            read_config(config, "config")
            model = build(config, seed)
        except HeadcountError:  # a combination that no model can run
            continue
        except Exception as refused:
            error = refused
            continue
        yield seed, config, model
        found += 1
        if found == count:
            return
    raise AssertionError(f"{model_type}: {found} of {count} built; {error}")


_EXPERTS = re.compile(r"(^|\.)experts\.[a-z_]+(_proj|_weight)?(\.weight|\.bias)?$")


def experts_not_visited(model: Any) -> int | None:
    """Parameters of fused experts beyond those that a token visits; None where there are none, or
    where the class keeps them in another form."""
    text = model.config.get_text_config(decoder=True)
    visited: int | None = next(
        (
            getattr(text, name)
            for name in ("num_experts_per_tok", "moe_topk", "top_k_experts")
            if type(getattr(text, name, None)) is int
        ),
        None,
    )
    fused = [
        parameter.shape
        for name, parameter in model.named_parameters()
        if _EXPERTS.search(name) and "shared" not in name and "self_att" not in name
    ]
    if any(".vision_moe." in name for name, _ in model.named_parameters()):
        return None  # ERNIE 4.5 VL: a token visits experts of one of two sets
    counts = {shape[0] for shape in fused}
    if visited is None or len(counts) != 1 or any(len(shape) < 2 for shape in fused):
        return None
    idle: int = max(0, counts.pop() - visited)
    each: int = sum(math.prod(shape[1:]) for shape in fused)
    return idle * each


def _task(model_type: str) -> str:
    tasks = [task for name, task in jobs() if name == model_type]
    if CONFIG_MAPPING[model_type].is_encoder_decoder and "seq2seq" not in tasks:
        return "base"  # its usual class is for speech
    order = ("seq2seq", "image_text", "causal", "masked")
    return next((task for task in order if task in tasks and task in TASKS), "base")


def total_config(model_type: str, seed: int) -> Config:
    """The config number `seed` of this type; the same on every run."""
    chance = random.Random(f"total {model_type} {seed}")
    stateful = model_type in state_configs.KNOBS
    values: Config = (
        state_configs.state_config(model_type, seed)
        if stateful
        else random_config(model_type, seed, _role(model_type, seed))
    )
    _vary(values, CONFIG_MAPPING[model_type], chance, 0.0 if seed == 0 else 0.25)
    if model_type in _OWN_HEAD_DIM:
        values.pop("head_dim", None)
    return values


def _role(model_type: str, seed: int) -> str:
    """Some models are built as decoders, with cross-attention where the class has it."""
    decodes = (model_type, "causal") in jobs() and not CONFIG_MAPPING[model_type].is_encoder_decoder
    return "causal" if decodes and seed % 4 == 2 else ""


def _vary(
    values: Config, config_class: type[PreTrainedConfig], chance: random.Random, likely: float
) -> None:
    instance = config_class(**random_configs._REFUSES_DEFAULTS.get(config_class.model_type, {}))
    declared = instance.to_dict()
    _one_spelling(values, config_class, declared)
    for name in sorted(declared.keys() | values.keys()):
        if name in config_class.sub_configs:
            _vary_nested(values, name, getattr(instance, name, None), chance, likely)
        elif chance.random() < likely + 0.3 * (name in _MORE):
            _vary_one(values, name, declared.get(name), chance, likely)
    _one_spelling(values, config_class, declared)
    values["tie_word_embeddings"] = chance.random() < 0.5


def _vary_one(
    values: Config, name: str, default: Any, chance: random.Random, likely: float
) -> None:
    if name == "mlp_layer_types":
        count = values.get("num_hidden_layers")
        if isinstance(default, list) and set(default) <= {"dense", "sparse"} and count and likely:
            values[name] = [chance.choice(("dense", "sparse")) for _ in range(count)]
    elif name in _MORE:
        if type(values.get(name, default)) is int or name == "mlp_only_layers":
            values[name] = chance.choice(_MORE[name])
    elif type(default) is bool and name not in _RUNNING | random_configs._SIZES.keys() and likely:
        values[name] = not default


def _vary_nested(
    values: Config, name: str, nested: Any, chance: random.Random, likely: float
) -> None:
    if isinstance(values.get(name), dict) and isinstance(nested, PreTrainedConfig):
        _vary(values[name], type(nested), chance, likely)
    elif isinstance(nested, PreTrainedConfig) and nested.model_type:
        sizes = {k: v for k, v in sorted(nested.to_dict().items()) if k in _TOWER and v}
        values[name] = {k: chance.choice(_TOWER[k]) for k in sizes} | {
            "model_type": nested.model_type
        }


_EXPERT_COUNTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size")


def _one_spelling(values: Config, config_class: type[PreTrainedConfig], declared: Config) -> None:
    """Drops the second spelling of a field, and counts of experts that the class does not have."""
    for name in _EXPERT_COUNTS:
        if name not in declared:
            values.pop(name, None)
    for name, own in config_class.attribute_map.items():
        if own in values and name != own:
            values.pop(name, None)
