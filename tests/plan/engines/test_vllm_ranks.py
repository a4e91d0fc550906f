"""What lies on a rank of vLLM: parameters, and buffers of adapters, as its own classes make them
(tests/support/judge/vllm_ranks.py records what they say)."""

import json
import os
from dataclasses import replace
from functools import lru_cache
from typing import Any

import pytest
from vllm_ranks import CASES, RECORD, VERSION, asked

from headcount.audit.auditing import audit_model
from headcount.plan.budget import Term
from headcount.plan.command import planned
from headcount.plan.devices import parse_device
from headcount.plan.engines.rope_tables import rope_table
from headcount.plan.engines.version import Releases
from headcount.plan.engines.vllm.allocator import unsplit
from headcount.plan.options.speculation import Speculation
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import PlanRequest

_FIRST, *LINES = RECORD.read_text(encoding="utf-8").splitlines()
RANKS: list[dict[str, Any]] = [json.loads(line) for line in LINES]
LORA = [found for found in RANKS if "lora" in found]
DEVICE = parse_device("1TiB")


@lru_cache
def in_16_bit(name: str) -> PlannedModel:
    """As the record has it: without quantisation."""
    model = planned(audit_model(name))
    config = {key: value for key, value in model.config.items() if key != "quantization_config"}
    spec = replace(model.spec, dtype="bfloat16")
    return replace(model, config=config, weights_bytes=None, spec=spec)


def plan_of(found: dict[str, Any]) -> Plan:
    request = PlanRequest(
        engine="vllm",
        version=Releases().parse(VERSION),
        device=DEVICE,
        context=1024,
        tp=found.get("tp", 1),
        dp=found.get("dp", 1),
        enable_expert_parallel=found.get("expert_parallel", False),
        num_redundant_experts=found.get("redundant", 0),
        speculative_config=Speculation(method="mtp", tokens=1) if found.get("drafts") else None,
        **({"enable_lora": True, **found["lora"]} if "lora" in found else {}),
    )
    return plan_model(in_16_bit(found["model"]), request)


def term(plan: Plan, key: str) -> Term:
    return next(term for term in plan.taken if term.key == key)


def told(found: dict[str, Any]) -> str:
    return "-".join(str(value) for key, value in found.items() if not key.endswith(("s", "d")))


def test_the_record_is_of_these_starts() -> None:
    assert json.loads(_FIRST)["vllm"] == VERSION
    assert [(name, case) for name, case in CASES] == [
        (found["model"], {key: found[key] for key in case})
        for found, (_, case) in zip(RANKS, CASES, strict=True)
    ]
    assert not any("error" in found for found in RANKS)


@pytest.mark.parametrize("found", LORA, ids=told)
def test_adapters_have_the_buffers_that_vllm_makes(found: dict[str, Any]) -> None:
    own = term(plan_of(found), "adapters")
    assert abs(own.bytes - found["lora_bytes"]) <= own.error_bytes
    if not own.error_bytes:
        assert own.bytes == found["lora_bytes"]


@pytest.mark.parametrize("found", RANKS, ids=told)
def test_a_rank_has_the_parameters_that_vllm_makes(found: dict[str, Any]) -> None:
    """But for norms and routers, which are taken to be split as all else is."""
    plan = plan_of(found)
    if found.get("drafts"):
        own, parameters = term(plan, "draft").bytes, found["parameters"] - found["shared"]
    else:
        beside = (rope_table(plan.spec, plan.model.config), unsplit(plan.model, plan.workload))
        own = term(plan, "weights").bytes - sum(table.bytes for table in beside if table)
        parameters = found["parameters"]
    assert own == pytest.approx(2 * parameters, rel=0.003)


def test_experts_are_whole_where_data_parallel_alone_would_split_them() -> None:
    """Both times a rank has a quarter of the experts, and all of attention."""
    whole = plan_of({"model": "mixtral-8x7b", "dp": 4, "expert_parallel": True})
    split = plan_of({"model": "mixtral-8x7b", "dp": 4})
    assert whole.weights_bytes == split.weights_bytes
    assert "2 of 8 experts on each of 4 ranks" in term(whole, "weights").formula
    assert "experts over 4 ranks" in term(split, "weights").formula


@pytest.mark.slow
@pytest.mark.skipif("HEADCOUNT_VLLM_PYTHON" not in os.environ, reason="wants vLLM's interpreter")
def test_vllm_says_today_what_is_recorded() -> None:
    assert list(asked(os.environ["HEADCOUNT_VLLM_PYTHON"])) == [line + "\n" for line in LINES]
