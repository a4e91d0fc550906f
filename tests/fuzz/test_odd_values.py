"""A value of another kind anywhere in a config of any type, or another shape in any header, gives a
report or one of our errors: from `audit`, `plan` and `convert --dry-run`. No size is negative.

The fast suite takes a sample, the slow one every place and value.
"""

from collections.abc import Callable, Mapping
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest

from fuzz_target import Target, check
from golden_files import checkpoints, write_checkpoint
from headcount.arch.registry import ARCHITECTURES
from headcount.audit.audit_report import audit_report
from headcount.audit.audited import Audit
from headcount.audit.auditing import audit_model, audit_source
from headcount.model.sizes import AuditRequest
from headcount.plan.command import planned
from headcount.plan.devices import parse_device
from headcount.plan.engines.registry import ENGINES
from headcount.plan.report.report import plan_report
from headcount.plan.request import PlanRequest
from headcount.plan.result import plan_result
from headcount.report import render
from headcount.sources.found import FoundModel
from odd_values import changed_configs, changed_headers

TYPES = sorted(ARCHITECTURES)
ROWS = list(checkpoints())


def holds(name: str, parse: Callable[[], object]) -> None:
    """Calls `parse`. What may not leave a parser does so under the name of the case."""
    target = Target(
        name=name, parse=lambda data: parse(), seeds=list, mutate=lambda data, random: data
    )
    try:
        check(target, b"")
    except Exception as error:
        raise AssertionError(f"{name}: {error!r}") from error


def shown(audit: Audit) -> Audit:
    """`audit` as reported."""
    spec = audit.spec
    sizes = (spec.parameters, audit.active_parameters, audit.attention_parameters)
    assert min(size or 0 for size in (*sizes, spec.cache_bytes(tokens=1000))) >= 0
    render([audit_report(audit, AuditRequest(explain=True))], "json")
    return audit


def audited(config: Mapping[str, Any]) -> Audit:
    where = "config.json"
    return shown(audit_source(FoundModel(kind="config", id="m", where=where, config=config)))


def plan(audit: Audit, engine: str) -> None:
    weighed = audit.weights_bytes or audit.spec.parameters
    model = planned(audit, None if weighed else 10**12)
    result = plan_result(model, PlanRequest(engine=engine, device=parse_device("h100")))
    render([plan_report(result)], "json")


def check_config(name: str, config: Mapping[str, Any], engine: str | None) -> None:
    holds(name, lambda: audited(config))
    if engine is not None:
        holds(f"{name}, {engine}", lambda: plan(audited(config), engine))


def check_headers(name: str, row: Mapping[str, Any], folder: Path) -> None:
    source = folder / "model"

    write_checkpoint(row, source)
    holds(name, lambda: shown(audit_model(str(source))))
    for kv_heads in (1, {0: 2, 1: 1}):
        holds(f"{name}, convert to {kv_heads}", lambda kv=kv_heads: dry_run(source, kv))


def dry_run(source: Path, kv_heads: Any) -> None:
    from headcount.convert.plan.describe import describe_plan
    from headcount.convert.plan.document import plan_summary
    from headcount.convert.plan.planner import plan_conversion
    from headcount.convert.plan.request import ConversionRequest

    target = source.with_name("target")
    plan = plan_conversion(
        ConversionRequest(source=source, target=target, num_key_value_heads=kv_heads)
    )
    assert list(describe_plan(plan)) and plan_summary(plan)


def sample(cases: Any, seed: str, count: int) -> list[tuple[str, Any]]:
    every = list(cases)
    return Random(seed).sample(every, min(count, len(every)))


def test_a_sample_of_odd_configs() -> None:
    engines = cycle(ENGINES)
    for model_type in TYPES[::9]:
        for name, config in sample(changed_configs(model_type), model_type, 5):
            check_config(f"{model_type}: {name}", config, next(engines))


@pytest.mark.needs_convert
def test_a_sample_of_odd_headers(tmp_path: Path) -> None:
    for checkpoint in ROWS[::35]:
        for name, row in sample(changed_headers(checkpoints()[checkpoint]), checkpoint, 5):
            check_headers(f"{checkpoint}: {name}", row, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("model_type", TYPES)
def test_every_odd_config(model_type: str) -> None:
    engines = cycle((*ENGINES, *(None,) * 10))  # a plan takes ten times as long as an audit
    for name, config in changed_configs(model_type):
        check_config(name, config, next(engines))


@pytest.mark.slow
@pytest.mark.needs_convert
@pytest.mark.parametrize("checkpoint", ROWS)
def test_every_odd_header(checkpoint: str, tmp_path: Path) -> None:
    for name, row in changed_headers(checkpoints()[checkpoint]):
        check_headers(name, row, tmp_path)
