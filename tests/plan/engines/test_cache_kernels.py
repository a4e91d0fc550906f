"""Which types of cache start: as `supported_kv_cache_dtypes` of the classes in
vllm/v1/attention/backends of 0.16 to 0.32 list them, and as SGLang's arg_groups/overrides.py and
kv_cache_hook.py of 0.5.23 check them. Bytes are those of the layouts that these files describe."""

from collections.abc import Callable
from typing import Any

import pytest

from config_specs import read_spec
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.vllm.cache_kernels import latent_notes, latent_refusals
from headcount.plan.plan import Plan
from headcount.sources.catalogue import find_row, read_entry

MakePlan = Callable[..., Plan]
INDEX_KEY = 132  # bytes: 128 in fp8 and a float32 scale


def planned(plan: MakePlan, name: str, **asked: Any) -> Plan:
    """Of vLLM's newest release on H200s, if `asked` does not say otherwise."""
    engine = find_engine(asked.pop("engine", "vllm"))
    version = engine.releases.parse(asked.pop("version", "0.32" if engine.name == "vllm" else ""))
    device = find_device(asked.pop("device", "h200"))
    request = {"context": 1024, "tp": 8, **asked}
    return plan(name, engine=engine.name, version=version, device=device, **request)


@pytest.mark.parametrize(
    ("name", "device", "version", "kv_dtype", "says"),
    [
        ("deepseek-v4-flash", "h200", "0.32", "bfloat16", "8 bit, not bfloat16: --kv-dtype fp8"),
        ("deepseek-v4-flash", "b200", "0.32", "int8_per_token_head", "8 bit, not int8"),
        ("deepseek-v4-flash", "h200", "0.32", "fp8_e5m2", None),
        ("deepseek-v4-flash", "h200", "0.32", None, None),
        # Latents: Triton's kernel has fp8 since 0.20, FlashMLA's on 9.x and 10.x before.
        ("deepseek-v3", "h200", "0.32", "fp8_e5m2", "no kernel reads latents in fp8_e5m2 on h200"),
        ("deepseek-v3", "h200", "0.32", "turboquant_4bit_nc", "latents in turboquant_4bit_nc"),
        ("deepseek-v3", "h200", "0.32", "fp8_ds_mla", "latents in fp8_ds_mla"),
        ("deepseek-v3", "a100-80gb", "0.19", "fp8", "auto, float16 or bfloat16"),
        ("deepseek-v3", "a100-80gb", "0.20", "fp8", None),
        ("deepseek-v3", "h100", "0.19", "fp8", None),
        # Latents that an indexer picks
        ("deepseek-v3.2", "h200", "0.28", "fp8_e4m3", "latents in fp8_e4m3 on h200"),
        ("deepseek-v3.2", "h200", "0.32", "fp8_e4m3", None),
        ("deepseek-v3.2", "h200", "0.32", "nvfp4_ds_mla", "latents in nvfp4_ds_mla on h200"),
        ("deepseek-v3.2", "b200", "0.32", "nvfp4_ds_mla", None),
        ("deepseek-v3.2", "rtx-pro-6000", "0.32", "bfloat16", None),
        ("glm-5", "rtx-pro-6000", "0.32", "bfloat16", "latents in bfloat16 on rtx-pro-6000"),
        # Heads of their own
        ("llama-3-70b", "h200", "0.32", "fp8_ds_mla", "keys and values of heads in fp8_ds_mla"),
        ("llama-3-70b", "h200", "0.28", "nvfp4", "compute capability 10.x alone"),
        ("llama-3-70b", "h200", "0.32", "nvfp4", None),
        ("llama-3-70b", "h200", "0.32", "nvfp4_4over6", "compute capability 10.x alone"),
        ("llama-3-70b", "h200", "0.32", "ultraquant_4bit", "kernels for ROCm alone"),
        ("llama-3-70b", "h200", "0.32", "fp8_e5m2", None),
    ],
)
def test_vllm_starts_with_what_a_kernel_of_it_reads(
    plan: MakePlan, name: str, device: str, version: str, kv_dtype: str | None, says: str | None
) -> None:
    found = planned(plan, name, device=device, version=version, kv_dtype=kv_dtype).refusals
    about = [text for text in found if "no kernel reads" in text or "8 bit, not" in text]
    about += [text for text in found if "a cache of" in text]
    assert [says in text for text in about] == [True] if says else about == []


@pytest.mark.parametrize(
    ("rank", "rotated", "refused", "note"),
    [
        (512, 64, False, False),
        (448, 128, False, True),
        (192, 128, False, True),
        (96, 32, True, False),
        (896, 128, True, False),
    ],
)
def test_latents_have_one_of_few_sizes(rank: int, rotated: int, refused: bool, note: bool) -> None:
    """vLLM 0.32 on the CPU answered with 512 + 64, and at the first request of a model with 96 + 32
    said "ValueError: Head dimension 128 is not supported by MLA."."""
    row = find_row("deepseek-v3")
    assert row is not None
    own = {"kv_lora_rank": rank, "qk_rope_head_dim": rotated}
    spec = read_spec({**read_entry(row).config, **own}, "made")
    words = f"320, 512 or 576 elements of a token (kv_lora_rank + qk_rope_head_dim), not {rank} +"
    assert any(words in said for said in latent_refusals(spec)) == refused
    for name, has_others in (("h100", True), ("mi300x", False)):
        said = " ".join(latent_notes(spec, find_device(name)))
        assert ("--attention-backend TRITON_MLA" in said) == (note and has_others)


@pytest.mark.parametrize("name", ["minicpm3-4b", "deepseek-v3.2", "deepseek-v4-flash", "glm-5"])
def test_other_sizes_where_latents_are_not_read_whole(plan: MakePlan, name: str) -> None:
    """MiniCPM3's class keeps keys and values of every head; those that pick tokens have kernels of
    their own."""
    assert not any("elements of a token" in said for said in planned(plan, name, tp=1).refusals)


@pytest.mark.parametrize(
    ("device", "version", "kv_dtype", "name", "latent"),
    [
        ("h200", "0.32", None, "bfloat16", 2 * 576),
        ("h200", "0.32", "fp8", "fp8_ds_mla", 656),  # FlashMLA's
        ("h200", "0.32", "fp8_e4m3", "float8_e4m3fn", 576),  # FlashInfer's of 9.x
        ("b200", "0.32", "fp8", "float8_e4m3fn", 576),  # FlashInfer's of 10.x come first
        ("b200", "0.16", "fp8", "fp8_ds_mla", 656),
        ("rtx-pro-6000", "0.32", None, "fp8_ds_mla", 656),
        ("mi300x", "0.32", "fp8", "float8_e4m3fn", 576),
    ],
)
def test_the_kernel_lays_latents_out(
    plan: MakePlan, device: str, version: str, kv_dtype: str | None, name: str, latent: int
) -> None:
    found = planned(plan, "deepseek-v3.2", device=device, version=version, kv_dtype=kv_dtype)
    assert found.workload.kv_dtype == name
    assert found.bytes_per_token == 61 * (latent + INDEX_KEY)


def test_glm_is_in_8_bit_where_its_class_says_so(plan: MakePlan) -> None:
    """GlmMoeDsaForCausalLM of vllm/model_executor/models/config.py of 0.32, on 10.x alone."""
    for device, version, latent in (
        *(("b200", "0.32", 576), ("b200", "0.28", 1152), ("h200", "0.32", 1152)),
    ):
        found = planned(plan, "glm-5", device=device, version=version)
        assert found.bytes_per_token == 78 * (latent + INDEX_KEY)


def test_a_release_whose_auto_is_refused_is_started_with_the_type(plan: MakePlan) -> None:
    for version, is_named in (("0.24", True), ("0.28", True), ("0.32", False)):
        command = planned(plan, "deepseek-v4-flash", version=version).launch_command
        assert command is not None
        assert ("--kv-cache-dtype fp8" in command) == is_named


@pytest.mark.parametrize(
    ("device", "version", "kv_dtype", "latent"),
    [
        ("h200", "0.5.23", None, 1152),
        ("h200", "0.5.23", "fp8_e4m3", 656),
        ("b200", "0.5.23", None, 576),  # TensorRT-LLM's kernels
        ("b200", "0.5.9", None, 656),
        ("b200", "0.5.23", "bfloat16", 1152),
        ("mi300x", "0.5.23", "fp8_e4m3", 576),
    ],
)
def test_sglang_keeps_picked_latents_as_the_device_has_it(
    plan: MakePlan, device: str, version: str, kv_dtype: str | None, latent: int
) -> None:
    asked: dict[str, Any] = {"device": device, "version": version, "kv_dtype": kv_dtype}
    found = planned(plan, "deepseek-v3.2", engine="sglang", **asked)
    assert found.bytes_per_token == 61 * (latent + INDEX_KEY)


@pytest.mark.parametrize(
    ("name", "device", "kv_dtype", "says"),
    [
        ("deepseek-v3.2", "h200", "fp8_e5m2", "an indexer picks are kept in bfloat16 or fp8_e4m3"),
        ("deepseek-v4-flash", "h200", "fp8_e5m2", "compressed tokens are kept in bfloat16 or"),
        ("deepseek-v4-flash", "h200", "bf16", None),
        ("llama-3-70b", "h200", "nvfp4", "compute capability 10.0"),
        ("llama-3-70b", "b200", "nvfp4", None),
        ("llama-3-70b", "h200", "fp8_e5m2", None),
    ],
)
def test_sglang_starts_with_what_it_checks_for(
    plan: MakePlan, name: str, device: str, kv_dtype: str, says: str | None
) -> None:
    found = planned(plan, name, engine="sglang", device=device, kv_dtype=kv_dtype).refusals
    assert any(says in text for text in found) if says else found == ()


def test_what_sglang_keeps_of_compressed_tokens_is_said_to_be_left_out(plan: MakePlan) -> None:
    notes = planned(plan, "deepseek-v4-flash", engine="sglang").pool.notes()
    assert any("without SGLang's pools" in note for note in notes)
