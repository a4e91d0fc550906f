"""What engines refuse to start: the sizes in these tests are those of the configs, and the rules
those that the engines' sources state."""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner

from config_specs import read_spec
from headcount.cli import main
from headcount.plan.devices import all_devices, find_device, parse_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.refusals.partition import CutRules, uneven_cuts
from headcount.plan.plan import Plan
from headcount.plan.planned_model import PlannedModel
from plan_runs import engine

MakePlan = Callable[..., Plan]
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128}


def refusals(plan: MakePlan, name: str, version: str = "0.33", **request: Any) -> tuple[str, ...]:
    name_of = request.setdefault("engine", "vllm")
    request.setdefault("device", find_device("h200"))
    parsed = find_engine(name_of).releases.parse(version)
    return plan(name, version=parsed, context=1024, **request).refusals


def cuts(config: Mapping[str, Any], tp: int, **rules: Any) -> list[str]:
    spec = read_spec(dict(config), "here")
    model = PlannedModel(model_id="here", spec=spec, config=config)
    return list(uneven_cuts(model, tp, CutRules(**rules)))


@pytest.mark.parametrize(
    ("name", "tp", "version", "size"),
    [
        # MiniMax-M2: experts of 1,536; DeepSeek-V3: MLPs of 18,432, experts of 2,048.
        ("minimax-m2", 8, "0.16.0", "1,536 of experts / 8 = 192"),
        ("minimax-m2", 8, "0.28.0", "1,536 of experts / 8 = 192"),
        ("deepseek-v3", 32, "0.33.0", "18,432 of mlp / 32 = 576"),
        ("deepseek-v3", 32, "0.11.0", "2,048 of experts / 32 = 64"),
        ("qwen3-235b-a22b-fp8", 8, "0.16.0", "1,536 of experts / 8 = 192"),
    ],
)
def test_a_block_that_does_not_divide_a_cut_is_refused(
    plan: MakePlan, name: str, tp: int, version: str, size: str
) -> None:
    found = refusals(plan, name, version, tp=tp)
    assert any(text.startswith(f"{size}, no multiple of the 128") for text in found), found
    assert not refusals(plan, name, version, tp=tp // 2)
    parsed = find_engine("vllm").releases.parse(version)
    refused = plan(name, engine="vllm", version=parsed, device=find_device("h200"), tp=tp)
    assert (refused.verdict, refused.fits) == ("does not start", False)


def test_blocks_of_experts_are_refined_where_triton_has_fp8(plan: MakePlan) -> None:
    """refine_fp8_moe_block_shape of vLLM 0.29: gcd(128, 192, 3,072) = 64."""
    assert refusals(plan, "minimax-m2", "0.29.0", tp=8) == ()
    assert refusals(plan, "minimax-m2", "0.29.0", tp=8, device=find_device("a100"))
    assert refusals(plan, "minimax-m2", "0.29.0", tp=8, device=find_device("mi300x")) == ()
    assert refusals(plan, "minimax-m2", "0.5.23", tp=8, engine="sglang")


@pytest.mark.parametrize(
    ("name", "device", "dtype", "least"),
    [
        ("llama-3-8b", "l40s", "mxfp8", "10.0"),
        ("llama-3-8b", "b200", "mxfp8", None),
        ("llama-3-8b", "t4", "fp8", "8.0"),
        ("llama-3-8b", "a100", "fp8", None),
        ("llama-3-8b", "t4", "awq", None),
        ("llama-3-8b", "t4", "int4", "8.0"),
        ("gpt-oss-20b", "t4", None, "8.0"),
    ],
)
def test_sglang_asks_of_a_device_what_the_format_does(
    plan: MakePlan, name: str, device: str, dtype: str | None, least: str | None
) -> None:
    """get_min_capability in sglang/srt/layers/quantization of 0.5.23."""
    found = refusals(plan, name, "0.5.23", engine="sglang", device=find_device(device), dtype=dtype)
    assert (found == ()) is (least is None)
    assert least is None or f"needs compute capability {least}" in found[0]


@pytest.mark.parametrize(
    ("device", "words"),
    [("l4", "computed with in 16 (Marlin"), ("t4", "back to 16 bit"), ("b200", None)],
)
def test_what_loads_of_mxfp8_is_said(device: str, words: str | None) -> None:
    """_POSSIBLE_MXFP8_KERNELS of vllm/model_executor/kernels/linear: FlashInfer's from 10.0 on,
    Marlin's from 8.0 on, emulation anywhere."""
    found = engine("qwen3-0.6b", "--engine", "vllm", "--device", device, "--dtype", "mxfp8")
    said = [note for note in found["notes"] if note.startswith("mxfp8 on")]
    assert bool(said) is (words is not None)
    assert words is None or words in said[0]


LLAMA = {
    **{"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 2, "vocab_size": 1024},
    **{"num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 3072},
}


def test_rows_and_columns_have_blocks_of_their_own() -> None:
    """At tp 4: 256 rows of q, k, v, 768 of gate and up; 256 columns of o, 768 of down."""
    by_rows = {"quant_method": "fp8", "weight_block_size": [512, 128]}
    by_columns = {"quant_method": "fp8", "weight_block_size": [128, 512]}
    parts = ["1,024 of attention / 4 = 256", "3,072 of mlp / 4 = 768"]
    for settings in (by_rows, by_columns):
        found = cuts({**LLAMA, "quantization_config": settings}, 4)
        assert [text.partition(", no")[0] for text in found] == parts
    merged = frozenset({"q", "k", "v", "gate", "up"})
    assert cuts({**LLAMA, "quantization_config": by_rows}, 4, amid_blocks=merged) == []
    assert len(cuts({**LLAMA, "quantization_config": by_columns}, 4, amid_blocks=merged)) == 2


def test_keys_and_values_are_cut_into_no_more_than_their_heads() -> None:
    """2 K/V heads of 128 at tp 8: one on each rank, and 128 divides it."""
    few = {**LLAMA, "num_key_value_heads": 2, "intermediate_size": 4096}
    assert cuts({**few, "quantization_config": BLOCKS}, 8) == []


def test_groups_must_divide_what_a_rank_reads() -> None:
    """18,944 / 4 = 4,736 = 37 x 128; / 8 = 2,368, no multiple of 128 (Qwen2.5-7B's MLPs)."""
    qwen = {**LLAMA, "intermediate_size": 18_944, "quantization_config": AWQ}
    assert cuts(qwen, 4) == []
    (found,) = cuts(qwen, 8)
    assert found == "18,944 of mlp / 8 = 2368, no multiple of the 128 weights that share a scale"
    whole_rows = {**AWQ, "quant_method": "gptq", "group_size": -1}
    assert cuts({**qwen, "quantization_config": whole_rows}, 8) == []


def test_groups_of_experts_are_halved(plan: MakePlan) -> None:
    """768 / 8 = 96: groups of 128 become 32 (moe_wna16.py); 768 / 32 = 24 is less than a group."""
    model = plan("qwen3-30b-a3b").model
    config = {**model.config, "quantization_config": AWQ}
    quantised = replace(model, config=config)
    assert list(uneven_cuts(quantised, 8, CutRules())) == []
    assert any("768 of experts" in text for text in uneven_cuts(quantised, 32, CutRules()))
    assert list(uneven_cuts(quantised, 32, CutRules(whole_experts=True))) == []


def test_experts_that_do_not_split_are_dealt_whole() -> None:
    """MiniMax-M2 with vLLM 0.16: at tp 8 with --enable-expert-parallel alone; 214 GiB of weights
    want 8 of the 48 GB cards."""
    args = ("minimax-m2", "--engine", "vllm", "--engine-version", "0.16.0", "--context", "4k")
    alone = engine(*args, "--device", "l40s", "--tp", "8")
    assert (alone["fits"], alone["verdict"]) == (False, "does not start")
    assert alone["smallest_change"]["change"] == "enable_expert_parallel"
    assert engine(*args, "--device", "l40s", "--tp", "8", "--enable-expert-parallel")["fits"]
    (found,) = engine(*args, "--device", "l40s", "--target-users", "4")["smallest"]
    assert (found["tp"], found["enable_expert_parallel"]) == (8, True)
    assert "--enable-expert-parallel" in found["launch_command"]


@pytest.mark.parametrize(
    ("name", "tp", "text"),
    [
        # 152,064 = 2^9 x 27 x 11 and 18,944 = 2^9 x 37 are no multiples of 7.
        ("qwen2.5-7b", 28, "152,064, padded to 152,064, is not divisible by 28"),
        ("qwen2.5-7b", 28, "18,944 of mlp / 28 = 676.571, not a whole number"),
    ],
)
def test_what_is_no_whole_number_is_refused(plan: MakePlan, name: str, tp: int, text: str) -> None:
    assert any(text in found for found in refusals(plan, name, tp=tp))


def test_a_vocabulary_is_padded_to_64_before_it_is_split(plan: MakePlan) -> None:
    """GPT-2's 50,257 become 50,304 = 3 x 16,768."""
    assert refusals(plan, "gpt2", tp=3) == ()


@pytest.mark.parametrize(
    ("program", "version", "device", "runs"),
    [
        ("vllm", "0.33", "p100", False),
        ("vllm", "0.33", "v100-32gb", False),
        ("vllm", "0.14.0", "v100-32gb", True),
        ("vllm", "0.33", "t4", True),
        ("vllm", "0.33", "mi210", True),
        ("vllm", "0.33", "arc-b580", True),
        ("vllm", "0.33", "m4-max-64gb", False),
        ("vllm", "0.33", "inferentia2", False),
        ("vllm", "0.33", "tpu-v6e", False),
        ("sglang", "0.5.23", "mi210", False),
        ("sglang", "0.5.23", "mi355x", True),
        ("sglang", "0.5.23", "t4", True),
        ("tensorrt-llm", "1", "t4", False),
        ("tensorrt-llm", "1", "l4", True),
        ("tensorrt-llm", "1", "mi300x", False),
        ("llama.cpp", "1", "m4-max-64gb", True),
        ("llama.cpp", "1", "p100", True),
        ("llama.cpp", "1", "trainium", False),
        ("transformers", "1", "m4-max-64gb", True),
    ],
)
def test_engines_run_on_what_their_pages_list(
    program: str, version: str, device: str, runs: bool
) -> None:
    found = find_engine(program)
    reason = found.not_run_on(find_device(device), found.releases.parse(version))
    assert (reason is None) is runs
    assert found.not_run_on(parse_device("80GiB"), found.releases.parse(version)) is None


@pytest.mark.parametrize(
    ("name", "version", "device", "request_", "says"),
    [
        # get_min_capability of each format.
        ("deepseek-v3", "0.13.0", "t4", {}, "fp8 needs compute capability 8.0, t4 has 7.5"),
        ("deepseek-v3", "0.33", "t4", {}, None),
        ("gpt-oss-20b", "0.33", "t4", {}, "mxfp4 needs compute capability 8.0"),
        ("gpt-oss-20b", "0.33", "a10", {}, None),
        ("llama-3-8b", "0.16.0", "a100", {"dtype": "nvfp4"}, None),
        ("llama-3-8b", "0.8.5", "h100", {"dtype": "nvfp4"}, "compute capability 10.0"),
        ("llama-3-8b", "0.19.0", "l4", {"dtype": "mxfp8"}, "compute capability 10.0, l4 has 8.9"),
        ("llama-3-8b", "0.19.0", "b200", {"dtype": "mxfp8"}, None),
        ("llama-3-8b", "0.20.0", "l4", {"dtype": "mxfp8"}, None),
        ("llama-3-8b", "0.33", "t4", {"dtype": "mxfp8"}, None),
        # ROCm's list of quantisations, and supports_fp8.
        ("gpt-oss-20b", "0.9.2", "mi300x", {}, "mxfp4 runs with ROCm since 0.10"),
        ("gpt-oss-20b", "0.33", "mi300x", {}, None),
        ("deepseek-v3", "0.19.0", "mi210", {}, "fp8 has no kernels for gfx90a"),
        ("deepseek-v3", "0.20.0", "mi210", {}, None),
        ("llama-3-8b", "0.33", "rx-7900-xtx", {"dtype": "fp8"}, "fp8 has no kernels for gfx1100"),
        # Backends of sparse MLA.
        (
            "deepseek-v3.2",
            "0.33",
            "a100",
            {"tp": 8},
            "kernels for compute capability 9.x, 10.x, 12.x",
        ),
        ("deepseek-v4-flash", "0.33", "l40s", {"tp": 8}, "attention by an indexer"),
        ("deepseek-v3.2", "0.33", "b300", {"tp": 8}, None),
        (
            "glm-5",
            "0.23.0",
            "rtx-pro-6000",
            {"tp": 8},
            "kernels for compute capability 9.x, 10.x, r",
        ),
        ("glm-5", "0.24.0", "rtx-pro-6000", {"tp": 8}, None),
        ("deepseek-v3", "0.33", "a100", {"tp": 8}, None),
        # check_if_supports_dtype and _FLOAT16_NOT_SUPPORTED_MODELS.
        ("llama-3-8b", "0.33", "t4", {"dtype": "bf16"}, "bfloat16 needs compute capability 8.0"),
        ("llama-3-8b", "0.33", "t4", {}, None),
        ("google/gemma-3-27b-it", "0.33", "t4", {}, "gemma3 is not run in float16"),
        ("google/gemma-3-27b-it", "0.33", "t4", {"dtype": "fp32"}, None),
        ("google/gemma-3-27b-it", "0.33", "a10", {}, None),
    ],
)
def test_a_format_needs_what_its_kernels_need(
    plan: MakePlan,
    name: str,
    version: str,
    device: str,
    request_: dict[str, Any],
    says: str | None,
) -> None:
    found = refusals(plan, name, version, device=find_device(device), **request_)
    assert any(says in text for text in found) if says else found == ()


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (("vllm", "--dtype", "nf4"), "vllm 0.33 loads no weights of nf4"),
        (("vllm", "--dtype", "q4_k_m"), "vllm 0.33 reads no GGUF files"),
        (("vllm", "--dtype", "mxfp8", "--engine-version", "0.15"), "loads no weights of mxfp8"),
        (("llama.cpp", "--dtype", "int4"), "llama.cpp has no weights of int4"),
        (("sglang", "--dtype", "float8_e5m2"), "loads no weights of float8_e5m2"),
        (("tensorrt-llm", "--dtype", "nf4"), "tensorrt-llm loads no weights of nf4"),
        (("transformers", "--dtype", "mxfp8"), "transformers loads no weights of mxfp8"),
        (("transformers", "--tp", "2", "--pp", "2"), "splits by tp, or by layers"),
        (("vllm", "--block-size", "7"), "no kernel of attention takes blocks of 7 tokens"),
        (("vllm", "--block-size", "1"), "no kernel of attention takes blocks of 1 tokens"),
        # A checkpoint that has to be made is none.
        (("vllm", "--dtype", "awq"), None),
        (("vllm", "--dtype", "nf4", "--engine-version", "0.27"), None),
        (("vllm", "--block-size", "48"), None),
    ],
)
def test_what_an_engine_has_no_way_to_load_passes_no_gate(
    args: tuple[str, ...], reason: str | None
) -> None:
    command = ["plan", "qwen3-8b", "--device", "h100", "--require", "fits", "--engine", *args]
    done = CliRunner().invoke(main, [*command, "--format", "json"])
    found = json.loads(done.stdout)
    assert done.exit_code == (1 if reason else 0)
    assert found["verdict"] == ("does not start" if reason else "fits")
    assert found["engine"]["launch_command"] is None if reason else not found["refusals"]
    if reason:
        assert reason in found["refusals"][0] and reason in done.stderr


def test_no_engine_starts_beyond_learned_positions(plan: MakePlan) -> None:
    """GPT-2 has 1,024."""
    found = plan("gpt2", engine="vllm", device=find_device("h100"), context=1025)
    assert (found.verdict, found.fits) == ("does not start", False)
    assert "learned 1,024 positions" in found.refusals[0]


@pytest.mark.parametrize(
    ("version", "size", "device", "says"),
    [
        # BlockSize of config.py and config/cache.py: 256 since 0.12, any number since 0.18.
        ("0.11.0", 256, "h100", "is one of 1, 8, 16, 32, 64, 128, not 256"),
        ("0.12.0", 256, "h100", None),
        ("0.17.0", 48, "h100", "is one of 1, 8, 16, 32, 64, 128, 256, not 48"),
        ("0.18.0", 48, "h100", None),
        ("0.17.0", 8, "h100", "takes blocks of 8 tokens"),
        ("0.33", 1, "mi300x", None),  # [1, MultipleOf(16)] of rocm_aiter_mla_sparse.py
    ],
)
def test_a_block_is_a_size_that_version_and_kernels_take(
    plan: MakePlan, version: str, size: int, device: str, says: str | None
) -> None:
    found = refusals(plan, "qwen3-8b", version, device=find_device(device), block_size=size)
    assert any(says in text for text in found) if says else found == ()


def test_beside_recurrent_state_a_block_is_made_of_the_size_asked_for(plan: MakePlan) -> None:
    assert refusals(plan, "qwen3-next", "0.33", block_size=8, tp=2) == ()


def test_weights_of_bitsandbytes_do_not_split(plan: MakePlan) -> None:
    """BitsAndBytesModelLoader: weights that are quantised already, and tensor parallelism."""
    model = plan("llama-3-8b").model
    settings = {"quant_method": "bitsandbytes", "load_in_4bit": True}
    stored = replace(model, config={**model.config, "quantization_config": settings})
    for tp, refused in ((1, 0), (2, 1)):
        planned = plan("llama-3-8b", engine="vllm", device=find_device("h100"), tp=tp)
        work = replace(planned.workload, request=replace(planned.request, tp=tp))
        vllm = find_engine("vllm")
        assert len(list(vllm.refusals(stored, find_device("h100"), work))) == refused
    assert refusals(plan, "llama-3-8b", "0.27", tp=2, dtype="nf4") == ()


def test_every_device_says_what_programs_are_built_for() -> None:
    """NVIDIA's and AMD's with the architecture, a sample typed from their tables."""
    for device in all_devices():
        assert device.platform in ("cuda", "rocm", "xpu", "hpu", "tpu", "neuron", "metal")
        assert (device.capability is not None) is (device.vendor in ("NVIDIA", "AMD"))
    known = {"t4": "7.5", "a100": "8.0", "a10": "8.6", "l40s": "8.9", "h200": "9.0", "p100": "6.0"}
    known |= {"b200": "10.0", "b300": "10.3", "rtx-5090": "12.0", "gb10": "12.1", "v100": "7.0"}
    known |= {"mi250x": "gfx90a", "mi300x": "gfx942", "mi355x": "gfx950"}
    assert {key: find_device(key).capability for key in known} == known
