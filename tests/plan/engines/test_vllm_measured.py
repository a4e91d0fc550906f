"""What vLLM logged at measured starts on H100-80GB (published in jgchn/llm-d-planner, branch
`accuracy`, accuracy/results), held against plans that know none of it.

`bench/engine_budget.py` does the same for a whole file of such runs, in two halves.
"""

from statistics import mean
from typing import NamedTuple

import pytest

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.request import PlanRequest

GIB = 2**30


class Start(NamedTuple):
    """GiB as logged: weights, peak of activations, outside torch, and what the cache got."""

    model: str
    vllm: str
    tp: int
    pp: int
    weights: float
    activations: float
    non_torch: float
    cache: float
    dtype: str | None = None
    utilisation: float = 0.95


STARTS = (
    Start("google/gemma-2-27b", "0.19.0", 1, 1, 50.72, 3.66, 0.26, 20.59),
    Start("google/gemma-2-2b", "0.19.0", 1, 1, 4.90, 3.62, 0.24, 66.47),  # config: float32
    Start("google/gemma-3-12b-it", "0.19.0", 1, 1, 23.31, 3.94, 0.25, 47.72),
    Start("google/gemma-3-27b-it", "0.19.0", 1, 1, 51.45, 3.99, 0.26, 19.53),
    Start("google/gemma-7b", "0.19.0", 1, 1, 15.91, 3.63, 0.25, 55.44),
    Start("ibm-granite/granite-3.3-8b-instruct", "0.19.0", 1, 1, 15.25, 0.85, 0.46, 58.66),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 1, 1, 14.99, 1.89, 0.25, 58.11),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 1, 1, 8.49, 1.89, 0.25, 64.61, "fp8"),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 1, 1, 29.98, 2.21, 0.25, 42.80, "float32"),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 1, 2, 7.51, 1.10, 0.07, 66.54),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 1, 4, 4.26, 1.05, 0.07, 69.80),
    Start("meta-llama/Llama-3.1-8B", "0.19.0", 4, 1, 3.77, 1.89, 2.13, 67.44),
    Start("meta-llama/Llama-4-Scout-17B-16E-Instruct", "0.19.0", 4, 1, 53.12, 3.19, 2.17, 16.75),
    Start("microsoft/phi-4", "0.19.0", 1, 1, 27.39, 1.52, 0.25, 46.08),
    Start("openai/gpt-oss-20b", "0.19.0", 1, 1, 13.64, 2.87, 0.25, 58.47),
    Start("openai/gpt-oss-20b", "0.19.0", 2, 1, 7.01, 2.87, 2.07, 59.32, None, 0.90),
    Start("Qwen/Qwen2.5-72B", "0.19.0", 2, 1, 67.80, 2.29, 2.09, 3.04),
    Start("Qwen/Qwen2.5-7B-Instruct", "0.19.0", 2, 1, 7.12, 2.21, 2.06, 63.84),
    Start("Qwen/Qwen3-14B", "0.17.0", 1, 1, 27.52, 2.23, 0.13, 45.34),
    Start("Qwen/Qwen3-14B", "0.15.0", 1, 1, 27.52, 5.64, 0.13, 41.94),
)
IDS = [f"{s.model.rsplit('/', 1)[-1]}-{s.vllm}-{s.tp}x{s.pp}-{s.dtype}" for s in STARTS]


def plan_of(start: Start) -> Plan:
    return plan_model(
        planned(audit_model(start.model)),
        PlanRequest(
            engine=ENGINE.name,
            version=ENGINE.releases.parse(start.vllm),
            device=find_device("h100"),
            context=8192,
            tp=start.tp,
            pp=start.pp,
            dtype=start.dtype,
            utilisation=start.utilisation,
        ),
    )


def cache_error(start: Start) -> float:
    """Of the first stage, whose worker logged."""
    return plan_of(start).available[0] / GIB / start.cache - 1


@pytest.mark.parametrize("start", STARTS, ids=IDS)
def test_the_cache_memory_is_what_was_logged(start: Start) -> None:
    plan = plan_of(start)
    assert abs(cache_error(start)) <= 0.006
    assert abs(plan.available[0] - start.cache * GIB) <= plan.budgets[0].error_bytes


def test_the_mean_error_is_small_and_the_bars_are_no_wider_than_they_must_be() -> None:
    assert mean(abs(cache_error(start)) for start in STARTS) <= 0.002
    bars = [plan_of(start).budgets[0].error_bytes / GIB for start in STARTS]
    assert mean(bars) <= 0.6 and max(bars) <= 1.0


@pytest.mark.parametrize("start", STARTS, ids=IDS)
def test_each_term_is_near_the_logged_one(start: Start) -> None:
    """So that no error hides another. Forward passes, which are the peak of a first stage, are
    known less well than sampling."""
    terms = {term.key: term for term in plan_of(start).budgets[0].fixed}
    logged = {"weights": start.weights, "activations": start.activations}
    for key, gib in {**logged, "non_torch": start.non_torch}.items():
        assert abs(terms[key].bytes / GIB - gib) <= max(0.02, terms[key].error_bytes / GIB) + 0.11
    if "sampler" in terms["activations"].formula:
        assert terms["activations"].bytes / GIB == pytest.approx(start.activations, abs=0.012)
