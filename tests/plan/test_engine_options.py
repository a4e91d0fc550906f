"""An engine takes the options that it heeds; any other is refused, and says who has it."""

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.registry import ENGINES, started
from headcount.plan.request import OF_ANY_PLAN, PlanRequest, flag

# Each option of some engine -> words of the command line; those of _LOGGED are read from logs only.
_LOGGED = {"caches_prefixes", "async_scheduling"}
GIVEN: dict[str, tuple[str, ...]] = {
    "version": ("--engine-version", "0.9"),
    "pp": ("--pp", "2"),
    "context_ranks": ("--context-ranks", "2"),
    "block_size": ("--block-size", "64"),
    "max_num_seqs": ("--max-num-seqs", "8"),
    "max_num_batched_tokens": ("--max-num-batched-tokens", "64k"),
    "enforce_eager": ("--enforce-eager",),
    "sampler": ("--sampler", "flashinfer"),
    "model_runner": ("--model-runner", "v1"),
    "usage": ("--offline",),
    "static_cache": ("--static-cache",),
    "disable_hybrid_kv_cache_manager": ("--disable-hybrid-kv-cache-manager",),
    "mamba_cache_mode": ("--mamba-cache-mode", "all"),
    "parallel": ("--parallel", "2"),
    "kv_unified": ("--kv-unified", "--batch-size", "8"),
    "ubatch_size": ("--ubatch-size", "256"),
    "cache_type_k": ("--cache-type-k", "q8_0"),
    "cache_type_v": ("--cache-type-v", "q8_0"),
    "flash_attn": ("--flash-attn", "off"),
    "swa_full": ("--swa-full",),
    "gpu_layers": ("--gpu-layers", "9"),
    "n_cpu_moe": ("--n-cpu-moe", "9"),
    "cpu_moe": ("--cpu-moe",),
    "no_kv_offload": ("--no-kv-offload",),
    "dp": ("--dp", "2"),
    "enable_expert_parallel": ("--enable-expert-parallel",),
    "num_redundant_experts": ("--num-redundant-experts", "2"),
    "pp_layer_partition": ("--pp-layer-partition", "20,28"),
    "enable_lora": ("--enable-lora",),
    "max_loras": ("--max-loras", "4"),
    "max_lora_rank": ("--max-lora-rank", "64"),
    "lora_dtype": ("--lora-dtype", "float16"),
    "lora_target_modules": ("--lora-target-modules", "q_proj"),
    "fully_sharded_loras": ("--fully-sharded-loras",),
    "limit_mm_per_prompt": ("--limit-mm-per-prompt", '{"image": 0, "video": 0}'),
    "mm_processor_kwargs": ("--mm-processor-kwargs", '{"max_pixels": 802816}'),
    "enable_dp_attention": ("--enable-dp-attention",),
    "ep_size": ("--ep-size", "2"),
    "speculative_algorithm": ("--speculative-algorithm", "NGRAM"),
    "cpu_offload_gb": ("--cpu-offload-gb", "4"),
    "speculative_config": (
        "--speculative-config",
        '{"method": "ngram", "num_speculative_tokens": 3}',
    ),
}
# What some need beside them, and the one model that they suit.
_NEEDED: dict[str | tuple[str, str], tuple[str, ...]] = {
    ("vllm", "num_redundant_experts"): ("--enable-expert-parallel",),
    ("sglang", "num_redundant_experts"): ("--ep-size", "2"),
    "pp_layer_partition": ("--pp", "2"),
    "enable_dp_attention": ("--dp", "2"),
    **{
        name: ("--enable-lora",)
        for name in GIVEN
        if name.startswith(("max_lora", "lora_", "fully_sharded"))
    },
}
_HYBRID_ALONE = (
    *("enable_expert_parallel", "num_redundant_experts", "pp_layer_partition", "ep_size"),
)
START = ("--device", "h100", "--context", "4k", "--tp", "2", "--format", "json")


def plan(*words: str) -> Any:
    done = CliRunner().invoke(main, ["plan", *words, *START])
    assert not done.exit_code, done.stderr
    document = json.loads(done.stdout)
    for name in ("context_ranks", "pp", "version"):  # said again, whatever is made of them
        document.get("engine", {}).pop(name, None)
    return document


def test_every_option_is_one_of_these() -> None:
    names = {field.name for field in fields(PlanRequest)} - OF_ANY_PLAN
    assert names == {*GIVEN, *_LOGGED}
    assert {name for each in ENGINES for name in find_engine(each).options} == names


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("engine", ENGINES)
def test_what_an_engine_does_not_take_is_refused(engine: str, name: str) -> None:
    if name in find_engine(engine).options:
        return
    words = ["plan", "gpt2", "--engine", engine, *START, *GIVEN[name]]
    done = CliRunner().invoke(main, words)
    having = [each for each in started() if name in find_engine(each).options]
    assert done.exit_code == 2
    assert f"{engine} has no {flag(name)}" in done.stderr
    assert all(each in done.stderr for each in having) and having


@pytest.mark.parametrize(
    ("engine", "name"),
    [
        (each, name)
        for each in ENGINES
        for name in GIVEN
        if name in find_engine(each).options
        # rules that have no number are those of any version
        and (name != "version" or find_engine(each).releases.newest)
    ],
)
def test_what_an_engine_takes_tells(engine: str, name: str) -> None:
    """A model with windows and one with recurrent state: one of the two plans differs at least."""
    models = ("qwen3-next",) if name in _HYBRID_ALONE else ("gemma-3-27b", "qwen3-next")
    needed = _NEEDED.get(name) or _NEEDED.get((engine, name), ())
    if engine == "sglang" and "lora" in name and name != "enable_lora":
        more = {"--max-lora-rank": "8", "--lora-target-modules": "o_proj"}
        more.pop(GIVEN[name][0], None)
        needed = (*needed, *(word for pair in more.items() for word in pair))
    start = ("--engine", engine, *needed)
    assert any(plan(model, *start) != plan(model, *start, *GIVEN[name]) for model in models)


def test_an_option_without_its_engine_is_not_passed_over() -> None:
    """Where none is named, vllm serves."""
    done = CliRunner().invoke(main, ["plan", "gpt2", *START, "--static-cache"])
    assert done.exit_code == 2
    assert "vllm has no --static-cache" in done.stderr and "--engine transformers" in done.stderr


def test_a_log_of_another_engine_takes_none_either(tmp_path: Path) -> None:
    log = tmp_path / "start.log"
    log.write_text("server_args=ServerArgs(model_path='Qwen/Qwen3-8B') max_total_num_tokens=9000\n")
    done = CliRunner().invoke(main, ["reconcile", str(log), "--enforce-eager"])
    assert done.exit_code == 2
    assert "sglang has no --enforce-eager" in done.stderr
