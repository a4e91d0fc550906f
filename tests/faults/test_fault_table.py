"""Every command that writes, with one call of the C library that goes wrong: each call in turn, and
each way to go wrong. Whatever happens, the inputs stay as they are, the output is the old or the
new one, whole, nothing is left that the next run does not use or remove, no process lives on, one
line explains what happened, and the next run gives what a run without a fault gives.

A row is a command (`scenarios.py`), a column a fault (`fault_columns.py`), a cell one call.
"""

from collections.abc import Callable
from random import Random

import pytest

from .conftest import RowOf
from .fault_columns import COLUMNS, READING, Column
from .faulty_runs import Fault
from .scenarios import CONVERSIONS, SCENARIOS, Scenario

pytestmark = pytest.mark.needs_convert
Record = Callable[[str, object], None]
SAMPLED = (CONVERSIONS[0], CONVERSIONS[2], *(s for s in SCENARIOS if s.name == "audit -o"))


def check(row_of: RowOf, scenario: Scenario, cells: list[tuple[Column, Fault]]) -> None:
    failures = [row_of(scenario).failure(column, fault) for column, fault in cells]
    found = [failure for failure in failures if failure]
    assert not found, f"{len(found)} of {len(cells)} cells\n" + "\n".join(found[:20])


def cells_of(row_of: RowOf, scenario: Scenario, column: Column) -> list[tuple[Column, Fault]]:
    return [
        (column, fault)
        for fault in column.cells(row_of(scenario).clean.counts, costly=scenario.costly)
    ]


def test_a_sample_of_the_table(row_of: RowOf, record_property: Record) -> None:
    """A few cells of each column, for the commands that take the least time."""
    random, total = Random(0), 0
    for scenario in SAMPLED:
        for column in COLUMNS:
            cells = cells_of(row_of, scenario, column)
            few = 2 if scenario is SAMPLED[0] else 1
            sample = random.sample(cells, min(few, len(cells)))
            check(row_of, scenario, sample)
            total += len(sample)
    record_property("fault cells", ["sample", "sample", total])


@pytest.mark.slow
@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: column.name.replace(" ", "-"))
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_table(
    row_of: RowOf, scenario: Scenario, column: Column, record_property: Record
) -> None:
    cells = cells_of(row_of, scenario, column)
    record_property("fault cells", [scenario.name, column.name, len(cells)])
    check(row_of, scenario, cells)


def test_a_row_notices_what_is_wrong(row_of: RowOf) -> None:
    """A table that cannot fail is none: a run that is stopped is held to what only holds for one
    that is not."""
    row = row_of(CONVERSIONS[0])
    killed = next(column for column in COLUMNS if column.name == "SIGKILL")
    broken = next(column for column in COLUMNS if column.name == "EIO")
    half = killed.fault("write", row.clean.counts["write"] // 2)
    assert row.failure(killed, half) == ""
    found = row.failure(broken, half)
    assert "the exit status" in found
    assert "left behind: ['.out." in found
    assert row.failure(killed, broken.fault("write", 2)) != ""


def test_the_calls_of_a_run_are_seen(row_of: RowOf) -> None:
    """Those of Python, of the readers and writers in C and Rust, and of processes it starts."""
    seen: set[str] = set()
    for scenario in CONVERSIONS[:1]:
        counts = row_of(scenario).clean.counts
        seen |= {kind for kind, count in counts.items() if count}
    expected = {*READING, "create", "write", "copy", "fsync", "rename", "mkdir", "unlink", "stat"}
    assert expected <= seen
