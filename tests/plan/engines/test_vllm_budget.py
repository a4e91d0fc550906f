"""What vLLM has left for its cache, from first principles, against start-up logs of real runs."""

from statistics import median

import pytest

from headcount.plan.devices import find_device
from headcount.plan.engines.vllm.defaults import counts_graphs, default_step, default_utilisation
from start_up_logs import GIB, RECORDS, Record, carries_enough, ids, parse_version, plan_of

ENOUGH = [record for record in RECORDS if carries_enough(record) is None]


def error(record: Record) -> float:
    logged: float = record["avail_kv_gib"]
    return abs(plan_of(record).available_bytes / GIB - logged) / abs(logged)


def test_available_memory_is_within_five_per_cent_at_the_median_and_ten_at_worst() -> None:
    errors = {str(record["id"]): error(record) for record in ENOUGH}
    assert len(errors) >= 13
    assert median(errors.values()) <= 0.05
    assert {name: found for name, found in errors.items() if found > 0.10} == {}


@pytest.mark.parametrize("record", ENOUGH, ids=ids(ENOUGH))
def test_the_logged_figure_lies_within_the_error_bar(record: Record) -> None:
    plan = plan_of(record)
    logged = record["avail_kv_gib"] * GIB
    assert abs(plan.available_bytes - logged) <= plan.error_bytes


WEIGHED = [record for record in ENOUGH if record.get("weights_gib")]


@pytest.mark.parametrize("record", WEIGHED, ids=ids(WEIGHED))
def test_weights_of_a_rank_are_those_of_the_log(record: Record) -> None:
    weights = next(term for term in plan_of(record).taken if term.key == "weights")
    assert weights.bytes / GIB == pytest.approx(record["weights_gib"], rel=0.025)


@pytest.mark.parametrize("record", ENOUGH, ids=ids(ENOUGH))
def test_each_term_says_how_it_came_about(record: Record) -> None:
    plan = plan_of(record)
    assert plan.budget is not None and plan.budget.allowed is not None
    allowed = plan.budget.allowed
    assert plan.available_bytes == allowed.bytes - sum(term.bytes for term in plan.taken)
    for term in (allowed, *plan.taken):
        assert term.formula
        assert term.source or term.error_bytes == 0


@pytest.mark.parametrize(
    ("version", "utilisation", "graphs"),
    [("0.11.0", 0.90, False), ("0.19.1", 0.90, False), ("0.20.0", 0.92, True), ("1.0", 0.92, True)],
)
def test_defaults_go_by_the_version(version: str, utilisation: float, graphs: bool) -> None:
    found = parse_version(version)
    assert default_utilisation(found) == utilisation
    assert counts_graphs(found) is graphs


@pytest.mark.parametrize(
    ("device", "version", "usage", "tokens", "seqs"),
    [
        ("a100-40gb", "0.9.2", "server", 2048, 256),
        ("a100-80gb", "0.11.0", "server", 2048, 256),
        ("a100-80gb", "0.11.0", "offline", 8192, 256),
        ("l40s", "0.19.0", "offline", 8192, 256),
        ("h100", "0.11.0", "server", 8192, 1024),
        ("h100", "0.11.0", "offline", 16384, 1024),
        ("mi300x", "0.11.0", "server", 8192, 1024),
        ("mi300x", "0.27.0", "server", 8192, 1024),
        ("mi300x", "0.28.0", "server", 16384, 1024),
        ("gb10", "0.18.1", "server", 2048, 256),
    ],
)
def test_a_step_goes_by_device_and_use(
    device: str, version: str, usage: str, tokens: int, seqs: int
) -> None:
    step = default_step(parse_version(version), find_device(device), usage)  # type: ignore[arg-type]
    assert (step.max_num_batched_tokens, step.max_num_seqs) == (tokens, seqs)
