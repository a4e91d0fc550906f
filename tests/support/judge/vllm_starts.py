"""Starts of vLLM's own server on a folder, beside what is planned for them."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from vllm_environment import VERSION, NoEnvironmentError, interpreter, start_log

from headcount.audit.auditing import audit_model
from headcount.plan.command import planned
from headcount.plan.engines.vllm.vllm import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.reconcile.log import Log, log_of_lines
from headcount.plan.request import PlanRequest


@dataclass(frozen=True)
class Start:
    """Options of a start on a CPU: `memory` in bytes, the others in tokens."""

    memory: int
    length: int
    batched: int
    block: int = 128


def vllm_python(folder: Path) -> Path:
    """The interpreter of an environment that has vLLM; skips the test where there can be none."""
    try:
        return interpreter(folder)
    except NoEnvironmentError as error:
        pytest.skip(f"vLLM cannot be installed here: {error}")


def started(python: Path, model: Path, log: Path, start: Start) -> Log:
    """What vLLM's server logs, as it was read; the lines are kept in `log`."""
    memory = ("--kv-cache-memory-bytes", str(start.memory))
    said = start_log(python, model, log, *memory, "--max-num-batched-tokens", str(start.batched))
    return log_of_lines(said.splitlines())


def plan_of(model: Path, start: Start) -> Plan:
    """The plan for such a start. A CPU's scheduler does not run ahead
    (CpuPlatform.check_and_update_config of vllm/platforms/cpu.py)."""
    request = PlanRequest(
        engine=ENGINE.name,
        version=ENGINE.releases.parse(VERSION),
        kv_memory=start.memory,
        context=start.length,
        block_size=start.block,
        max_num_batched_tokens=start.batched,
        async_scheduling=False,
    )
    return plan_model(planned(audit_model(str(model))), request)
