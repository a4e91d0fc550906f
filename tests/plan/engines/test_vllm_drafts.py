"""Caches that a draft shares, as vLLM's own code makes them (tests/support/judge/vllm_drafts.py
records what it says)."""

import json
import os
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from vllm_drafts import AVAILABLE, CASES, RECORD, asked, draft_config
from vllm_ranks import VERSION

from headcount.arch.read_config import read_config
from headcount.plan.devices import parse_device
from headcount.plan.engines.version import Releases
from headcount.plan.options.speculation import Speculation
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest

_FIRST, *LINES = RECORD.read_text(encoding="utf-8").splitlines()
DRAFTS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
KNOWN = [found for found in DRAFTS if "error" not in found]


@lru_cache
def model_of(name: str) -> PlannedModel:
    config = draft_config(name)
    assert config is not None
    spec = read_config(config, name).spec
    return PlannedModel(model_id=name, spec=spec, config=config)


def plan_of(case: list[Any]) -> Plan:
    name, method, draft, tokens, tp, pp, context = case
    request = PlanRequest(
        engine="vllm",
        version=Releases().parse(VERSION),
        device=parse_device("h100"),
        kv_memory=AVAILABLE,
        context=context,
        tp=tp,
        pp=pp,
        speculative_config=Speculation(
            method=method, tokens=tokens, draft=model_of(draft) if draft else None
        ),
    )
    return plan_model(model_of(name), request)


def told(found: dict[str, Any]) -> str:
    return "-".join(map(str, found["case"][:6]))


def test_the_record_is_of_these_starts() -> None:
    assert [found["case"] for found in DRAFTS] == [list(case) for case in CASES]
    assert json.loads(_FIRST)["vllm"] == VERSION


@pytest.mark.parametrize("found", KNOWN, ids=told)
def test_a_drafts_cache_is_among_the_blocks_that_vllm_counts(found: dict[str, Any]) -> None:
    plan = plan_of(found["case"])
    assert plan.num_blocks == found["blocks"]
    assert plan.pool.block_size == found["block_size"]
    assert plan.kv_tokens == found["tokens"]
    assert plan.concurrency == pytest.approx(found["concurrency"], rel=1e-12)
    assert len(plan.pool.table.groups) == found["groups"]  # type: ignore[attr-defined]


def test_a_draft_that_vllm_refuses_is_refused() -> None:
    refused = [found for found in DRAFTS if "error" in found]
    assert all("same vocabulary size" in found["error"] for found in refused) and refused
    for found in refused:
        assert any("vocabulary" in text for text in plan_of(found["case"]).refusals)


def test_a_measured_start_of_a_hybrid_that_drafts() -> None:
    """300,220 tokens were logged, by a 27B hybrid with MTP 3 on two devices: 205 blocks of 1,600
    tokens, of which a request of 262,144 takes 164 + 3 groups x (2 + 3)."""
    block = 1600 * 17 * 2 * 256 * 2  # 17 layers of 2 K/V heads of 256, keys and values, in 8 bit
    plan = plan_of(["qwen3.5-27b", "mtp", None, 3, 2, 1, 262144])
    request = replace(
        plan.request,
        version=Releases().parse("0.24.0"),
        kv_memory=int(205.5 * block),
        kv_dtype="fp8",
        caches_prefixes=True,
    )
    found = plan_model(plan.model, request)
    assert (found.num_blocks, found.pool.block_size) == (205, 1600)
    assert found.kv_tokens == 300_220 == int(205 / (164 + 3 * 5) * 262_144)


@pytest.mark.slow
@pytest.mark.skipif("HEADCOUNT_VLLM_PYTHON" not in os.environ, reason="wants vLLM's interpreter")
def test_vllm_says_today_what_is_recorded() -> None:
    assert list(asked(os.environ["HEADCOUNT_VLLM_PYTHON"])) == [line + "\n" for line in LINES]
