"""Pipeline stages: what each keeps, by hand, also where a stage has no cache of its own."""

import random
from typing import Any

import pytest

from config_specs import read_spec
from headcount.model.errors import HeadcountError
from headcount.plan.devices import parse_device
from headcount.plan.engines.registry import started
from headcount.plan.engines.rope_tables import rope_table
from headcount.plan.engines.sglang import sglang_stages
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.report.report import plan_report
from headcount.plan.request import PlanRequest
from headcount.plan.result import plan_result
from headcount.report import render
from headcount.sources.catalogue import find_row, read_entry

MIB = 2**20
DEVICE = parse_device("24GB")
# Each with what is odd about it: shared caches, no cache at all, state only, state beside
# attention, cross-attention, a latent.
ODD = (
    *("gemma-4-e4b", "gemma-4-e2b", "gemma-3n-e4b"),
    "bert-base",
    "openai/clip-vit-base-patch32",
    "tiiuae/falcon-mamba-7b",
    "mamba-2.8b",
    "zamba2-2.7b",
    "t5-small",
    "whisper-small",
    "deepseek-v2-lite",
)


def planned(name: str) -> PlannedModel:
    row = find_row(name)
    assert row is not None, name
    entry = read_entry(row)
    spec = read_spec(entry.config, name)
    return PlannedModel(model_id=name, spec=spec, config=entry.config, weights_bytes=2**30)


def staged(name: str, engine: str, pp: int, **more: Any) -> Plan:
    return plan_model(planned(name), PlanRequest(engine=engine, device=DEVICE, pp=pp, **more))


@pytest.mark.parametrize(
    ("layers", "pp", "counts"), [(32, 4, [8, 8, 8, 8]), (62, 4, [15, 15, 16, 16]), (5, 2, [2, 3])]
)
def test_sglang_gives_what_is_left_over_to_the_last_stages(
    layers: int, pp: int, counts: list[int]
) -> None:
    stages = sglang_stages(layers, pp)
    assert [stages.count(stage) for stage in range(pp)] == counts


@pytest.mark.parametrize("engine", started())
def test_a_stage_keeps_the_cache_of_its_own_layers(engine: str) -> None:
    """Llama 3 8B: 32 layers of 8 K/V heads of 128; 8,192 tokens of 8 layers in 16 bit. vLLM keeps
    a block of 16 tokens for itself."""
    plan = staged("llama-3-8b", engine, 4, context=8192)
    expected = 8192 * 8 * 8 * (128 + 128) * 2
    assert [plan.pool.needed(8192, 1, stage) for stage in range(4)] == [expected] * 4
    kept = 16 * expected // 8192 if engine == "vllm" else 0
    assert (plan.kv_cache_bytes, expected) == (expected + kept, 256 * MIB)
    assert plan.bytes_per_token == expected // 8192
    free = min(plan.available)
    assert plan.concurrency == pytest.approx(free / expected, rel=0.001)
    assert plan.kv_tokens == pytest.approx(8192 * free / expected, rel=0.001 + 1 / plan.concurrency)


def test_stages_of_gemma_4_e4b() -> None:
    """42 layers on stages of 10, 11, 11 and 10; every sixth is full, and from layer 24 on they read
    others' caches. Of the 4 full and 20 sliding layers vLLM makes 6 groups of 4, dealt out in turn:
    stages have at most 2, 2, 1 and 0 layers of a group side by side. A page is 16 tokens of 2 heads
    of 512."""
    plan = staged("gemma-4-e4b", "vllm", 4)
    page = 16 * 2 * (512 + 512) * 2
    assert plan.pool.table.block_bytes == (2 * page, 2 * page, page, 0)  # type: ignore[attr-defined]
    # 8,192 blocks of the full group; 512 - 1 and 5 steps of 2,048 tokens in blocks of 32, and one.
    blocks = 131_072 // 16 + 5 * (-(-(511 + 5 * 2048) // 32) + 1)
    assert plan.kv_cache_bytes == 2 * page * (blocks + 1)  # and the null block
    assert plan.num_blocks == min(plan.available[0] // 2, plan.available[2]) // page
    assert plan.concurrency == plan.num_blocks / blocks
    (note,) = (text for text in plan.pool.notes() if "another stage" in text)
    assert note.startswith("10 layers")  # 32 to 41: 22 and 23, which they read, are on stage 3


def test_formula_is_of_the_tightest_stage() -> None:
    """63 layers: SGLang's last three of four stages have 16, the first 15 and the embedding."""
    model = planned("gemma-2-27b")
    plan = plan_model(model, PlanRequest(engine="sglang", kv_memory=2**34, pp=4, context=4096))
    (term,) = plan.terms
    assert term.formula.startswith(f"{term.bytes:,} B ")
    sizes = [plan.pool.needed(4096, 1, stage) for stage in range(4)]
    assert term.bytes == max(sizes) > min(sizes)


def test_a_model_without_a_cache_has_no_limit_by_it() -> None:
    plan = staged("bert-base", "vllm", 2)
    titles = {fact.title for fact in plan_report(plan_result(plan.model, plan.request)).facts}
    assert "Available for the cache" in titles
    assert not titles & {"KV cache size", "Concurrency", "Limited by"}


@pytest.mark.parametrize("name", ODD)
def test_odd_models_have_a_plan_on_any_stages(name: str) -> None:
    model, drawn, made = planned(name), random.Random(name), 0
    for engine in started():
        for pp in (1, 2, 3, 4, 8, 64):
            request = PlanRequest(
                engine=engine,
                device=parse_device(drawn.choice(["24GB", "1MiB", "4TiB"])),
                context=drawn.choice([1, 7, 513, 100_003]),
                batch_size=drawn.choice([1, 3, 129]),
                tp=drawn.choice([1, 1, 2, 3, 8]),
                pp=pp,
            )
            try:
                result = plan_result(model, request)
            except HeadcountError as error:
                assert "does not split" in str(error)
                continue
            made += 1
            assert render([plan_report(result)], "json")
            assert len(result.plan.budgets) == pp
    assert made > 4


def test_only_rotary_positions_have_a_rope_table() -> None:
    """Llama 3: 8,192 positions x 128 elements x 2 bytes. Others learn positions, or bias them."""
    llama = planned("llama-3-8b")
    table = rope_table(llama.spec, llama.config)
    assert table is not None and table.bytes == 8192 * 128 * 2
    for name in ("gpt2", "opt-125m", "bloom-560m", "mpt-7b", "whisper-small"):
        other = planned(name)
        assert rope_table(other.spec, other.config) is None
