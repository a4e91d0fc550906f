"""What engines call the types of their caches: the names of a version are planned and passed on,
and no others are."""

from collections.abc import Iterator
from typing import Any

import pytest

from headcount.audit.auditing import audit_model
from headcount.model.errors import HeadcountError
from headcount.plan.command import planned
from headcount.plan.devices import parse_device
from headcount.plan.engines.cache_names import CacheNames
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.kv_formats import kv_format
from headcount.plan.engines.sglang_caches import CACHES as SGLANG
from headcount.plan.engines.tensorrt_llm import CACHES as TENSORRT_LLM
from headcount.plan.engines.vllm.cache_types import CACHES as VLLM
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest

FP8 = ("auto", "fp8", "fp8_e4m3", "fp8_e5m2")
TURBO = tuple(f"turboquant_{name}" for name in ("k8v4", "4bit_nc", "k3v4_nc", "3bit_nc"))
V012 = (*FP8, "bfloat16", "fp8_inc", "fp8_ds_mla")
V020 = (*V012, "float16", *TURBO, "int8_per_token_head", "fp8_per_token_head", "nvfp4")
V030 = (*V020, "int4_per_token_head", "nvfp4_4over6", "nvfp4_ds_mla")
SGL05 = ("auto", "fp8_e5m2", "fp8_e4m3")
SGL16 = (*SGL05, "bf16", "bfloat16", "mxfp8", "nvfp4", "fp4_mx_block16")
# engine, version -> the names, as the engine's own option lists them: CacheDType of vLLM's
# config/cache.py (config.py in 0.8.5 and 0.9.2), choices of SGLang's --kv-cache-dtype.
LISTED: dict[tuple[str, str], tuple[str, ...]] = {
    ("vllm", "0.8.5"): FP8,
    ("vllm", "0.9.2"): FP8,
    ("vllm", "0.10.2"): (*FP8, "fp8_inc"),
    ("vllm", "0.11.0"): (*FP8, "fp8_inc", "bfloat16"),
    ("vllm", "0.12.0"): V012,
    ("vllm", "0.17.0"): V012,
    ("vllm", "0.18.0"): (*V012, "float16"),
    ("vllm", "0.19.0"): (*V012, "float16"),
    ("vllm", "0.20.0"): V020,
    ("vllm", "0.24.0"): V020,
    ("vllm", "0.25.0"): (*V020, "int4_per_token_head"),
    ("vllm", "0.27.0"): (*V020, "int4_per_token_head"),
    ("vllm", "0.28.0"): (*V020, "int4_per_token_head", "nvfp4_4over6"),
    ("vllm", "0.30.0"): V030,
    ("vllm", "0.31.0"): V030,
    ("vllm", "0.32.0"): (*V030, "ultraquant_4bit"),
    ("sglang", "0.5.2"): SGL05,
    ("sglang", "0.5.3"): SGL05,
    ("sglang", "0.5.4"): (*SGL05, "bf16", "bfloat16"),
    ("sglang", "0.5.5"): (*SGL05, "bf16", "bfloat16", "fp4_e2m1"),
    ("sglang", "0.5.15"): (*SGL05, "bf16", "bfloat16", "fp4_e2m1"),
    ("sglang", "0.5.16"): (*SGL16, "fp4_e2m1"),
    ("sglang", "0.5.20"): (*SGL16, "fp4_e2m1"),
    ("sglang", "0.5.21"): SGL16,
    ("sglang", "0.5.23"): SGL16,
}
NAMES: dict[str, CacheNames] = {"vllm": VLLM, "sglang": SGLANG}
ALL = {
    engine: {n for (e, _), names in LISTED.items() if e == engine for n in names}
    for engine in NAMES
}


def plan(engine: str, kv_dtype: str | None, version: str | None = None, **options: Any) -> Plan:
    found = find_engine(engine)
    asked = {
        "version": None if version is None else found.releases.parse(version),
        "kv_memory": None if engine == "generic" else 20 * 2**30,
        **options,
    }
    request = PlanRequest(engine=engine, kv_dtype=kv_dtype, context=8192, **asked)
    return plan_model(planned(audit_model("llama-3-8b")), request)


def refusals(engine: str, version: str) -> Iterator[str]:
    """Names of any version of the engine's that this one does not take."""
    parsed = find_engine(engine).releases.parse(version)
    for name in sorted(ALL[engine]):
        try:
            assert NAMES[engine].own(name, parsed, "float32") == name
        except HeadcountError as error:
            assert f"{version} has no cache of '{name}'" in str(error)
            yield name


@pytest.mark.parametrize(("engine", "version"), LISTED)
def test_a_version_takes_the_names_that_it_lists(engine: str, version: str) -> None:
    assert {*refusals(engine, version)} == ALL[engine] - {*LISTED[engine, version]}


@pytest.mark.parametrize("names", [VLLM, SGLANG, TENSORRT_LLM])
def test_every_name_has_a_format(names: CacheNames) -> None:
    for name in names.since:
        assert kv_format(name, compute_bits=16).bits in (3, 4, 8, 16), name


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "transformers", "llama.cpp"])
@pytest.mark.parametrize("name", ["int4", "int8", "fp64", "float8", "no_such"])
def test_what_an_engine_has_no_cache_of_is_refused(engine: str, name: str) -> None:
    with pytest.raises(HeadcountError, match=f"'{name}'"):
        plan(engine, name)


@pytest.mark.parametrize(
    ("engine", "version", "words"),
    [
        ("vllm", "0.19.0", r"vLLM 0\.19\.0 has no.*0\.20 has it; --kv-cache-dtype takes auto, fp8"),
        ("sglang", "0.5.9", r"SGLang 0\.5\.9 has no.*0\.5\.16 has it; .* bf16, fp4_e2m1$"),
        ("transformers", None, "the dtype that it computes in, bfloat16"),
        ("generic", None, "an engine's own: name the one with --engine"),
    ],
)
def test_the_error_names_what_the_version_has(engine: str, version: str | None, words: str) -> None:
    with pytest.raises(HeadcountError, match=words):
        plan(engine, "nvfp4", version)


@pytest.mark.parametrize(
    ("engine", "version", "asked", "passed"),
    [
        ("vllm", "0.9.2", "bf16", None),  # the dtype of the model, which has no name there
        ("vllm", "0.9.2", "fp8", "--kv-cache-dtype fp8"),
        ("vllm", "0.32", "bf16", "--kv-cache-dtype bfloat16"),
        ("vllm", "0.32", "float8_e5m2", "--kv-cache-dtype fp8_e5m2"),
        ("sglang", "0.5.3", "bf16", None),
        ("sglang", "0.5.23", "fp8", "--kv-cache-dtype fp8_e4m3"),
        ("sglang", "0.5.23", "auto", None),
        ("tensorrt-llm", None, "nvfp4", "kv_cache_config: {dtype: nvfp4}"),
        ("tensorrt-llm", None, "bfloat16", None),
    ],
)
def test_the_command_has_the_engines_own_name(
    engine: str, version: str | None, asked: str, passed: str | None
) -> None:
    found = plan(engine, asked, version, kv_memory=None, device=parse_device("h100")).launch
    assert found is not None and found.command is not None
    said = " ".join((found.command, *found.notes))  # or what a file of settings has to hold
    assert ("cache-dtype" in said or "{dtype" in said) == (passed is not None)
    assert passed is None or passed in said


def test_the_cache_of_a_float16_model_is_not_bfloat16_by_accident() -> None:
    """SGLang has no name for float16, and needs none where the model computes in it."""
    assert plan("sglang", "fp16", dtype="float16").workload.kv_dtype == "float16"
    with pytest.raises(HeadcountError, match="computes in bfloat16"):
        plan("sglang", "fp16")


@pytest.mark.parametrize(
    ("name", "block_bytes"),
    [("q8_0", 34), ("q5_1", 24), ("q5_0", 22), ("q4_1", 20), ("q4_0", 18), ("iq4_nl", 18)],
)
def test_without_an_engine_blocks_of_32_are_whole(name: str, block_bytes: int) -> None:
    """Bytes of ggml's blocks (ggml-common.h); 32 layers x 8 K/V heads x 256 elements a token."""
    found = plan("generic", name)
    assert found.bytes_per_token == 32 * (8 * 256 // 32) * block_bytes
    assert found.workload.kv_dtype == name
