"""Which rules of vLLM hold in which version, by its sources; expected figures by hand."""

from dataclasses import replace
from typing import Any

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.budget import captured_sizes
from headcount.plan.engines.vllm.measured import outside_torch
from headcount.plan.engines.vllm.runner import uses_v2, v1_sampler, v2_copies_logits
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest

GIB = 2**30
H100 = find_device("h100")
parse_version = ENGINE.releases.parse


def plan(model: str | PlannedModel, version: str = "0.33", **options: Any) -> Plan:
    known = planned(audit_model(model)) if isinstance(model, str) else model
    if "kv_memory" not in options:
        options = {"device": H100, **options}
    request = PlanRequest(engine="vllm", version=parse_version(version), **options)
    return plan_model(known, request)


@pytest.mark.parametrize(
    ("version", "asked", "device", "rows", "sampler"),
    [
        ("0.9.2", None, "h100", 1024, "sort"),
        ("0.16.0", None, "h100", 1024, "sort"),
        ("0.16.0", "flashinfer", "h100", 1024, "flashinfer"),
        ("0.17.0", None, "h100", 1024, "triton"),
        ("0.17.0", None, "h100", 7, "sort"),
        ("0.20.2", None, "h100", 1024, "triton"),
        ("0.21.0", None, "h100", 1024, "flashinfer"),
        ("0.21.0", None, "mi300x", 1024, "triton"),
        ("0.21.0", "pytorch", "h100", 1024, "triton"),
    ],
)
def test_the_v1_runner_samples_by_version_and_device(
    version: str, asked: str | None, device: str, rows: int, sampler: str
) -> None:
    assert v1_sampler(parse_version(version), asked, find_device(device), rows) == sampler


# use_v2_model_runner and what it calls in vllm/config/vllm.py of each release.
V2_BY_DEFAULT = {
    "qwen3-8b": "0.22.0",
    "llama-3.1-8b": "0.23.0",
    "mistral-7b-v0.1": "0.23.0",
    "deepseek-v2-lite": "0.24.0",
    "qwen1.5-moe-a2.7b": "0.24.0",
    "gemma-2-9b": "0.25.0",  # dense
    "opt-125m": "0.25.0",
    "qwen3-30b-a3b": "0.29.0",  # experts, and not one of those named
    "qwen3-next": "0.29.0",
    "nvidia/NVIDIA-Nemotron-Nano-9B-v2": "0.29.0",  # recurrent layers
}
RELEASES = [f"0.{n}.0" for n in range(19, 34)]


@pytest.mark.parametrize(("model", "since"), V2_BY_DEFAULT.items())
def test_the_v2_runner_is_the_default_of_more_and_more_models(model: str, since: str) -> None:
    for release in RELEASES:
        found = plan(model, release, context=2048)
        expected = parse_version(release).at_least(*parse_version(since).numbers)
        assert uses_v2(found.model, found.workload) is expected, release


def test_quantised_weights_kept_a_model_on_v1_until_0_24() -> None:
    for version, expected in (("0.23.0", False), ("0.24.0", True)):
        found = plan("llama-3.1-8b", version, dtype="fp8")
        assert uses_v2(found.model, found.workload) is expected


def test_the_runner_can_be_chosen() -> None:
    found = plan("qwen3-8b", "0.33", model_runner="v1")
    assert not uses_v2(found.model, found.workload)
    assert "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve" in (found.launch_command or "")
    assert "sampler: 14 B x 1,024 sequences" in found.taken[1].formula


@pytest.mark.parametrize(
    ("version", "copies"),
    [
        *[("0.21.0", False), ("0.22.0", True), ("0.25.0", True), ("0.26.0", False)],
        *[("0.27.0", True), ("0.28.0", False), ("0.33.0", False)],
    ],
)
def test_v2_copied_its_logits_in_some_versions(version: str, copies: bool) -> None:
    """`apply_sampling_params` of vllm/v1/worker/gpu/sample/sampler.py."""
    assert v2_copies_logits(parse_version(version)) is copies


def test_sampling_by_version() -> None:
    """Llama 3.1 8B, 1,024 sequences of 128,256 logits, hidden states of 8,192 + 2 x 1,024 tokens x
    4,096 x 2 B, cuBLAS's 32 MiB."""
    logits, states = 1024 * 128256, (8192 + 2048) * 4096 * 2 + 32 * 2**20
    for version, each, more in (
        ("0.16.0", 38, 0),
        ("0.17.0", 14, 4 * 132 * 128256),  # Triton's row for each multiprocessor of an H100
        ("0.21.0", 14, 0),
    ):
        assert plan("llama-3.1-8b", version).taken[1].bytes == each * logits + more + states
    small = plan("qwen3-0.6b", "0.25.0").taken[1]  # V2: the tokens' states once
    assert small.bytes == 6 * 1024 * 151936 + (8192 + 1024) * 1024 * 2 + 32 * 2**20
    newest = plan("llama-3.1-8b", "0.33").taken[1]
    assert newest.formula.startswith("forward: 8,192 tokens x (4 x hidden 4,096 + 43,008")


def test_counts_of_tokens_are_v2s_since_0_27() -> None:
    """1,024 x 128,256 x 4 B, and a bit for each."""
    for version, expected in (("0.26.0", 0), ("0.27.0", 1024 * (4 * 128256 + 128256 // 8))):
        terms = {term.key: term.bytes for term in plan("llama-3.1-8b", version).taken}
        assert terms.get("token_counts", 0) == expected


def test_memory_outside_torch_goes_by_version_and_layout() -> None:
    """2.06 to 2.21 GiB in measured starts of 0.19 with tp 2 and 4, 0.07 on a stage, about 4 on 16
    ranks of two machines; 0.24 to 0.26 alone; 0.13 in 0.17; 0.55 with tp 2 in 0.11."""
    for version, tp, pp, low, high in (
        ("0.19.0", 1, 1, 0.24, 0.26),
        ("0.19.0", 2, 1, 2.06, 2.11),
        ("0.19.0", 4, 1, 2.13, 2.21),
        ("0.19.0", 1, 4, 0.05, 0.15),
        ("0.19.0", 8, 2, 3.5, 4.5),
        ("0.17.0", 1, 1, 0.13, 0.13),
        ("0.15.0", 2, 1, 0.54, 0.55),
    ):
        found = outside_torch(parse_version(version), tp, pp, H100)
        assert low - 0.005 <= found.gib <= high + 0.005
        assert found.error_gib > 0 and found.source


@pytest.mark.parametrize(("version", "blocks"), [("0.28.0", 128), ("0.29.0", 127)])
def test_a_start_wants_room_for_the_null_block_since_0_29(version: str, blocks: int) -> None:
    """get_kv_cache_configs of vllm/v1/core/kv_cache_utils.py holds a request against what is left
    of 128 blocks without one, and logs the tokens of all."""
    memory = 128 * 16 * 147_456  # 2 x 36 layers x 8 heads x 128 x 2 B of a token
    found = plan("qwen3-8b", version, kv_memory=memory, context=1024)
    assert found.limits.max_context == 16 * blocks
    assert (found.num_blocks, found.kv_tokens) == (128, 2048)
    assert plan("qwen3-8b", version, kv_memory=memory, context=16 * blocks).fits
    assert not plan("qwen3-8b", version, kv_memory=memory, context=16 * blocks + 1).fits


def test_float32_checkpoints_are_loaded_as_16_bit() -> None:
    """vLLM 0.32's own kv_cache_utils gives 109,184 tokens for 20 GiB, in blocks of 128."""
    found = plan("smollm-1.7b", "0.32", kv_memory=20 * GIB, block_size=128)
    assert found.spec.dtype == "float32"
    assert (found.kv_tokens, found.workload.kv_dtype) == (109_184, "bfloat16")
    assert plan("smollm-1.7b").taken[0].bytes == pytest.approx(2 * 1_711_376_384, rel=0.01)
    kept = plan("smollm-1.7b", "0.32", kv_memory=20 * GIB, block_size=128, dtype="float32")
    assert (kept.kv_tokens, kept.workload.kv_dtype) == (54_528, "float32")


def test_float32_files_are_halved_but_not_by_engines_that_keep_them() -> None:
    stored = replace(planned(audit_model("smollm-1.7b")), weights_bytes=4 * 1_711_376_384)
    assert plan(stored).weights is not None
    assert plan(stored).weights.total_bytes == 2 * 1_711_376_384  # type: ignore[union-attr]
    request = PlanRequest(engine="transformers", device=H100)
    kept = plan_model(stored, request)
    assert kept.weights is not None and kept.weights.total_bytes == 4 * 1_711_376_384
    assert kept.workload.kv_dtype == "float32"


@pytest.mark.parametrize(
    ("version", "encoder_tokens"), [("0.10.2", 1500), ("0.12.0", 1500), ("0.13.0", 8192)]
)
def test_cross_attention_is_reserved_for_a_whole_step(version: str, encoder_tokens: int) -> None:
    """448 tokens of the decoder's own, and the encoder's, in blocks of 16."""
    found = plan("whisper-large-v3", version, kv_memory=20 * GIB)
    own, cross = 448 // 16, -(-encoder_tokens // 16)
    assert found.concurrency == found.num_blocks / (own + cross)  # type: ignore[operator]


def test_a_stages_bytes_per_token_are_its_own_layers() -> None:
    """Llama 3.1 8B: 131,072 B a token, half of it on each of two stages."""
    assert plan("llama-3.1-8b", pp=2).bytes_per_token == 131_072 // 2


def test_0_14_to_0_16_hold_the_whole_cache_against_the_smallest_stage() -> None:
    """vllm-project/vllm#34076: a request of 128k tokens takes 16 GiB in all, 8 on each stage."""
    for version, fits in (("0.13.0", True), ("0.14.0", False), ("0.16.0", False), ("0.17.0", True)):
        found = plan("llama-3.1-8b", version, pp=2, kv_memory=12 * GIB, context=131_072)
        assert found.fits is fits
        assert any("0.14 to 0.16" in note for note in found.pool.notes()) is not fits


def test_before_0_9_1_concurrency_is_of_tokens() -> None:
    """0.8.5 logged 198,784 tokens and 24.27 for 8,192 of them; blocks of 16 hold 8,200 tokens in
    513, so that 12,424 of them would be 24.218 requests."""
    page = 16 * 48 * 1 * 256 * 2  # Qwen3-30B-A3B with tp 4: 48 layers of one K/V head of 128
    memory = 12_424 * page
    log = plan("qwen3-30b-a3b", "0.8.5", tp=4, kv_memory=memory, context=8192)
    assert (log.kv_tokens, round(log.concurrency, 2)) == (198_784, 24.27)
    odd = [
        plan("qwen3-30b-a3b", version, tp=4, kv_memory=memory, context=8200).concurrency
        for version in ("0.9.0", "0.9.1")
    ]
    assert odd == [198_784 / 8200, 12_424 / 513]


@pytest.mark.parametrize(("seqs", "count"), [(1024, 51), (256, 51), (128, 35), (8, 5), (1, 2)])
def test_graphs_are_captured_for_so_many_sizes(seqs: int, count: int) -> None:
    """Measured starts with 1,024 sequences captured 51 sizes up to 512."""
    assert captured_sizes(seqs) == count


def test_workspaces_of_experts_stay_since_0_14() -> None:
    """Llama 4 Scout with tp 4: 8,192 tokens, one expert each, two workspaces as wide as the hidden
    5,120 (16,384 / 4 and 8,192 / 4 are narrower). 3.19 GiB were measured with 0.19."""
    kept = 8192 * 2 * 5120 * 2
    terms = {
        version: plan("llama-4-scout", version, tp=4, context=8192).taken[1]
        for version in ("0.13.0", "0.19.0")
    }
    assert f"{kept:,} B of experts" in terms["0.19.0"].formula
    assert "of experts" not in terms["0.13.0"].formula
    assert terms["0.19.0"].bytes / GIB == pytest.approx(3.19, abs=0.012)


def test_mxfp4_experts_have_no_workspace_that_stays() -> None:
    """2.87 GiB were measured for gpt-oss-20b with 0.19, with tp 1 and 2."""
    for tp in (1, 2):
        found = plan("gpt-oss-20b", "0.19.0", tp=tp, context=8192).taken[1]
        assert found.bytes / GIB == pytest.approx(2.87, abs=0.012)


def test_the_v2_runner_reserves_nothing_for_graphs_until_0_28() -> None:
    """vllm-project/vllm#49224: its profile_cudagraph_memory returned 0."""
    for version, runner, counts in (
        ("0.19.0", "v1", False),
        ("0.20.0", "v1", True),
        ("0.28.0", "v1", True),
        ("0.28.0", "v2", False),
        ("0.29.0", "v2", True),
    ):
        keys = {term.key for term in plan("llama-3.1-8b", version, model_runner=runner).taken}
        assert ("cuda_graphs" in keys) is counts
    rocm = plan("llama-3.1-8b", "0.25.0", model_runner="v1", device=find_device("mi300x"))
    assert "cuda_graphs" not in {term.key for term in rocm.taken}
