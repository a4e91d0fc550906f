"""What vLLM was asked about configs, what it answered, and the plans that are held against that.

`tests/plan/engines/vllm.jsonl` is written by `tools/record_vllm.py`, which asks vLLM's own code in
an environment of its own (`ask_vllm.py`). The first line says which vLLM and what was asked; then
one line a model, with an answer for each of the settings. Needs neither vLLM nor torch.
"""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from headcount.audit.auditing import audit_model, audit_source
from headcount.model.errors import HeadcountError
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.pool import VllmPool
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest
from headcount.sources.catalogue import catalogue, read_entry
from headcount.sources.found import FoundModel

RECORD = Path(__file__).parents[2] / "plan" / "engines" / "vllm.jsonl"
DEVICE = "h100"  # as which vLLM poses
AVAILABLE = 16_000_000_000_033  # bytes: so many that any length fits, and no multiple of a block
Setting = dict[str, Any]  # names of vLLM's EngineArgs
SETTINGS: tuple[Setting, ...] = (
    {},
    {"max_model_len": 1000},
    {"max_model_len": 5000, "block_size": 32},
    {"max_model_len": 4096, "tensor_parallel_size": 2},
    {"max_model_len": 4096, "tensor_parallel_size": 4},
    {"max_model_len": 4096, "tensor_parallel_size": 8},
    {"max_model_len": 4096, "kv_cache_dtype": "fp8"},
    {"max_model_len": 3000, "block_size": 64, "enable_prefix_caching": False},
    {
        **{"max_model_len": 10_000, "max_num_batched_tokens": 4096},
        **{"tensor_parallel_size": 2, "pipeline_parallel_size": 2},
    },
)
_FIELDS = {
    "max_model_len": "context",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "kv_cache_dtype": "kv_dtype",
    "enable_prefix_caching": "caches_prefixes",
    "async_scheduling": "async_scheduling",
    "block_size": "block_size",
    "max_num_batched_tokens": "max_num_batched_tokens",
}
# Configs that no model of the catalogue has.
_LLAMA = {
    **{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 2048},
    **{"num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 6},
    **{"intermediate_size": 4096, "max_position_embeddings": 8192, "vocab_size": 1000},
}
_FP8_CACHE = {"num_bits": 8, "type": "float", "symmetric": True, "dynamic": False}
_FP8_CACHE |= {"strategy": "tensor"}
_PACKED = {
    **{"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128},
    **{"symmetric": True, "dynamic": False},
}
# The sizes of Kimi-Linear-48B-A3B's published config.json.
_KIMI_LINEAR = {
    **{"model_type": "kimi_linear", "architectures": ["KimiLinearForCausalLM"]},
    **{"hidden_size": 2304, "intermediate_size": 9216, "vocab_size": 163840, "head_dim": 72},
    **{"num_hidden_layers": 27, "num_attention_heads": 32, "num_key_value_heads": 32},
    **{"kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "v_head_dim": 128},
    **{"qk_rope_head_dim": 64, "mla_use_nope": True, "dtype": "bfloat16", "hidden_act": "silu"},
    "linear_attn_config": {
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27],
        "kda_layers": [n for n in range(1, 27) if n % 4],
        **{"head_dim": 128, "num_heads": 32, "short_conv_kernel_size": 4},
    },
    **{"moe_intermediate_size": 1024, "num_experts": 256, "num_experts_per_token": 8},
    **{"num_shared_experts": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1},
    **{"num_expert_group": 1, "topk_group": 1, "routed_scaling_factor": 2.446},
    **{"moe_router_activation_func": "sigmoid", "moe_renormalize": True},
    **{"model_max_length": 1048576, "tie_word_embeddings": False, "rms_norm_eps": 1e-05},
}
# Its layers with a window are named as its published config does, and have other heads.
_INKLING = {
    **{"model_type": "inkling_mm_model", "architectures": ["InklingForConditionalGeneration"]},
    "text_config": {
        **{"hidden_size": 2048, "num_hidden_layers": 18, "vocab_size": 4096, "head_dim": 128},
        **{"num_attention_heads": 16, "num_key_value_heads": 8, "sliding_window_size": 512},
        **{"swa_num_attention_heads": 16, "swa_num_key_value_heads": 16, "swa_head_dim": 128},
        **{"local_layer_ids": [n for n in range(18) if n % 6 != 5], "sconv_kernel_size": 4},
        **{"intermediate_size": 1024, "dense_intermediate_size": 4096, "dense_mlp_idx": 2},
        **{"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2},
        **{"use_sconv": True, "d_rel": 16, "rel_extent": 1024, "shared_expert_sink": True},
    },
    "dtype": "bfloat16",
}
MADE: dict[str, dict[str, Any]] = {
    "made: float32": {**_LLAMA, "torch_dtype": "float32"},
    "made: compressed-tensors with scales of a cache": {
        **_LLAMA,
        "quantization_config": {
            **{"quant_method": "compressed-tensors", "format": "pack-quantized"},
            **{"kv_cache_scheme": _FP8_CACHE, "ignore": ["lm_head"]},
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": _PACKED}},
        },
    },
    "made: a head dim of 192": {**_LLAMA, "head_dim": 192},
    "made: latents beside Kimi delta attention": _KIMI_LINEAR,
    "made: convolutions of layers with and without a window": _INKLING,
}


class Answer(NamedTuple):
    """What vLLM says of one setting; `block_size` is the least of the groups that keep tokens."""

    max_model_len: int
    groups: int
    blocks: int
    block_size: int | None
    tokens: int
    concurrency: float


class Refusal(NamedTuple):
    """Why vLLM takes no such setting."""

    error: str


class Recorded(NamedTuple):
    """A model, and what vLLM says of each of SETTINGS. `config` is None for the catalogue's."""

    id: str
    config: dict[str, Any] | None
    answers: tuple[Answer | Refusal, ...]


def questions(
    classes: list[tuple[str, dict[str, Any]]],
) -> Iterator[tuple[str, dict[str, Any]]]:
    """(id, config) of every model of the catalogue, of the classes that it lacks, and of those that
    are made here."""
    known: set[str] = set()
    for row in catalogue():
        config = read_entry(row).config
        known.update(config.get("architectures") or ())
        yield row.id, config
    for name, config in classes:
        if name not in known:
            yield f"class: {name}", config
    yield from MADE.items()


def line_of(name: str, config: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """As it is recorded."""
    own = {} if ":" not in name else {"config": config}
    found = list(map(_written, answers))
    is_one = isinstance(found[0], str) and all(n == found[0] for n in found)
    return {"model": name, **own, "answers": found[0] if is_one else found}


def _written(answer: dict[str, Any]) -> list[Any] | str:
    if "error" in answer:
        return " ".join(answer["error"].split())[:160]
    return [answer.get(name) for name in Answer._fields]


def header() -> dict[str, Any]:
    """The record's first line."""
    with RECORD.open(encoding="utf-8") as file:
        first: dict[str, Any] = json.loads(file.readline())
    return first


@cache
def recorded() -> tuple[Recorded, ...]:
    """Every model of the record."""
    lines = RECORD.read_text("utf-8").splitlines()[1:]
    return tuple(_read(json.loads(line)) for line in lines)


def _read(line: dict[str, Any]) -> Recorded:
    answers = line["answers"]
    each = [answers] * len(SETTINGS) if isinstance(answers, str) else answers
    found = (Refusal(n) if isinstance(n, str) else Answer(*n) for n in each)
    return Recorded(line["model"], line.get("config"), tuple(found))


def model_of(case: Recorded) -> PlannedModel:
    """Raises HeadcountError for a config that is not understood."""
    if case.config is None:
        return planned(audit_model(case.id))
    found = FoundModel(kind="config", id=case.id, where="config.json", config=case.config)
    return planned(audit_source(found))


def plan_of(model: PlannedModel, version: str, setting: Mapping[str, Any], length: int) -> Answer:
    """The plan's own figures, of requests as long as vLLM took them. Raises HeadcountError."""
    fields = {_FIELDS[name]: value for name, value in setting.items()}
    plan = plan_model(
        model,
        PlanRequest(
            engine=ENGINE.name,
            version=ENGINE.releases.parse(version),
            device=find_device(DEVICE),
            kv_memory=AVAILABLE,
            **{**fields, "context": length},
        ),
    )
    pool, context = plan.pool, plan.workload.context
    assert isinstance(pool, VllmPool)
    return Answer(
        max_model_len=context,
        groups=len(pool.table.groups),
        blocks=pool.num_blocks(plan.available),
        block_size=pool.block_size,
        tokens=pool.kv_tokens(plan.available, context),
        concurrency=pool.concurrency(plan.available, context),
    )


def differences(case: Recorded, version: str) -> dict[int, str]:
    """By the number of the setting: where the plan says other than vLLM, and what either says."""
    found, model = {}, None
    for number, (setting, answer) in enumerate(zip(SETTINGS, case.answers, strict=True)):
        if isinstance(answer, Refusal):
            continue
        try:
            model = model or model_of(case)
            own = plan_of(model, version, setting, answer.max_model_len)
        except HeadcountError as error:
            found[number] = f"vLLM: {answer}; the plan: {error}"
            continue
        if own != answer:
            found[number] = f"vLLM: {answer}; the plan: {own}"
    return found
