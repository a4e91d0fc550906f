"""SGLang and transformers against figures that they printed, or hold."""

from typing import Any

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.engine import find_engine
from headcount.plan.engines.kv_formats import kv_format
from headcount.plan.engines.layers import LayerCache, staged_caches
from headcount.plan.engines.sglang import mem_fraction_static, sglang_pool
from headcount.plan.engines.transformers import TransformersPool
from headcount.plan.options.speculation import Algorithm
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest

GIB = 2**30


def test_sglang_tokens_of_qwen3_235b() -> None:
    """vllm-project/vllm#21348, tp 4: 367,404 tokens, K 8.23 GB and V 8.23 GB (both GiB)."""
    spec = audit_model("qwen3-235b-a22b").spec
    pool = sglang_pool(staged_caches(spec, tp=4, kv=kv_format("bf16", compute_bits=16)).caches)
    assert pool.cell_bytes == 2 * 128 * 94 * 2
    low, high = (pool.kv_tokens([int(2 * gib * GIB)], 32768) for gib in (8.225, 8.235))
    assert low <= 367_404 <= high


def test_sglang_rounds_to_pages() -> None:
    pool = sglang_pool([LayerCache(kind="full", token_bytes=100)], page_size=64)
    assert pool.kv_tokens([100 * 1000], 100) == 960
    assert pool.num_blocks([100 * 1000]) == 15
    assert pool.concurrency([100 * 1000], 96) == 10.0


def test_sglang_keeps_fewer_tokens_in_layers_with_a_window() -> None:
    full = LayerCache(kind="full", token_bytes=100)
    window = LayerCache(kind="sliding", token_bytes=100, window=128)
    pool = sglang_pool([full, window])
    assert pool.cell_bytes == 180
    assert pool.kv_tokens([180_000], 1000) == 1000
    assert pool.concurrency([180_000], 1000) == 1.0


def test_sglang_shares_memory_between_state_and_keys() -> None:
    pool = sglang_pool(
        [LayerCache(kind="full", token_bytes=10), LayerCache(kind="state", state_bytes=1000)]
    )
    free = 19_000
    assert pool.kv_tokens([free], 100) == 1000  # 9,000 of 19,000 bytes are for state
    assert pool.concurrency([free], 100) == 9


def served(name: str, version: str = "0.5.23", **options: Any) -> Plan:
    request = PlanRequest(
        engine="sglang",
        version=find_engine("sglang").releases.parse(version),
        device=find_device("h200"),
        context=1024,
        **options,
    )
    return plan_model(planned(audit_model(name)), request)


@pytest.mark.parametrize(
    ("name", "version", "each"),
    [
        ("qwen3.5-27b", "0.5.5", 3),  # MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO
        ("qwen3.5-27b", "0.5.9", 3),
        ("qwen3.5-27b", "0.5.16", 5),  # and two of MAMBA_CACHE_V2_ADDITIONAL_RATIO_OVERLAP
        ("qwen3.5-27b", "0.5.23", 5),
    ],
)
def test_a_request_of_sglang_takes_the_states_that_prefixes_keep(
    name: str, version: str, each: int
) -> None:
    plan = served(name, version)
    states = plan.spec.constant_state_bytes(bits=16)
    budget = plan.available_bytes * 9 // 19  # --mamba-full-memory-ratio 0.9
    assert plan.concurrency == budget // states // each
    assert plan.holds(1024, int(plan.concurrency))
    assert not plan.holds(1024, int(plan.concurrency) + 1)


def drafting(draft: str = "NGRAM") -> dict[str, Any]:
    found = Algorithm(draft).speculation(lambda name: planned(audit_model(name)))
    return {"speculative_algorithm": found}


@pytest.mark.parametrize(
    ("name", "options", "most"),
    [
        ("qwen3-0.6b", {}, 4096),
        ("qwen3-0.6b", {"max_num_seqs": 24}, 24),
        ("qwen3-0.6b", {"dp": 2}, 2 * 4096),
        ("qwen3-0.6b", drafting(), 48),
        ("qwen3-0.6b", {**drafting(), "max_num_seqs": 100}, 100),
        ("deepseek-v4-flash", {"tp": 4}, 256),
        ("deepseek-v3", {"tp": 8, "dp": 8, "enable_dp_attention": True}, 8 * 4096),
        (
            "deepseek-v3",
            {"tp": 8, "dp": 8, "enable_dp_attention": True, **drafting("NEXTN")},
            48,  # shared among the ranks, 6 each
        ),
    ],
)
def test_sglang_runs_no_more_requests_than_it_limits_itself_to(
    name: str, options: dict[str, Any], most: int
) -> None:
    """resolve_max_num_reqs, and what speculation and DeepSeek-V4 set --max-running-requests to."""
    assert served(name, **options).most_at_once == most


@pytest.mark.parametrize(
    ("device", "ranks", "expected"),
    [("h100", 1, 0.833), ("h100", 8, 0.815), ("l40s", 1, 0.848), ("h200", 8, 0.895)],
)
def test_sglang_leaves_room_for_a_step_and_graphs(device: str, ranks: int, expected: float) -> None:
    """H100, 81,080 MiB: less 512 + 1.5 x 8,192 + 128 + 2 x 256 + 8 x 16."""
    total = find_device(device).usable_memory
    share = mem_fraction_static(total, ranks=ranks, is_latent=False)
    assert share == pytest.approx(expected, abs=0.001)
    latent = mem_fraction_static(total, ranks=8, is_latent=True)
    assert 0.5 < latent <= share


def test_transformers_dynamic_windows_keep_one_token_less() -> None:
    spec = audit_model("mistral-7b-v0.1").spec
    make = {
        static: TransformersPool(spec=spec, bits=16, encoder_tokens=0, static=static)
        for static in (False, True)
    }
    assert make[True].sequence_bytes(32_768) == 4096 * 131_072
    assert make[False].sequence_bytes(32_768) == 4095 * 131_072
    assert make[False].concurrency([10 * 1000 * 131_072], 1000) == 10.0
    assert make[False].kv_tokens([10 * 1000 * 131_072], 1000) == 10_000
    assert "reserves" in make[True].notes()[0]


@pytest.mark.parametrize("engine", ["transformers", "sglang", "vllm", "llama.cpp"])
def test_a_rank_has_a_head_at_least_and_a_latent_whole(engine: str) -> None:
    """Qwen3-30B-A3B: 48 layers of 4 K/V heads of 128, one of them on each of 8 ranks. DeepSeek-V3:
    61 layers of 512 + 64, all of them on each."""
    for name, layers, elements in (("qwen3-30b-a3b", 48, 2 * 128), ("deepseek-v3", 61, 576)):
        request = PlanRequest(engine=engine, device=find_device("b200"), tp=8, context=4096)
        pool = plan_model(planned(audit_model(name)), request).pool
        assert pool.bytes_per_token(4096) == layers * elements * 2
        assert pool.needed(4096, 1) == 4096 * layers * elements * 2
