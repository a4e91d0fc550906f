"""The server of the table of faults, and its rows: made when they are first asked for."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .fault_row import Row
from .faulty_runs import FaultyRuns, faulty_runs, missing
from .scenarios import Scenario, make_inputs

RowOf = Callable[[Scenario], Row]


@pytest.fixture(scope="session")
def fault_base() -> Iterator[Path]:
    """The folder below which calls go wrong: what is read, and where temporary files are made; in
    memory where there is a place for that, since each run waits for a disk some 40 times."""
    if missing():
        pytest.skip(f"faults need {missing()}")
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="faults-", dir=memory) as folder:
        base = Path(os.path.realpath(folder))
        for name in ("inputs", "tmp"):
            (base / name).mkdir()
        make_inputs(base / "inputs")
        yield base


@pytest.fixture(scope="session")
def fault_runs(fault_base: Path) -> Iterator[FaultyRuns]:
    with faulty_runs(fault_base / "tmp") as runs:
        yield runs


@pytest.fixture(scope="session")
def row_of(fault_base: Path, fault_runs: FaultyRuns) -> RowOf:
    """row_of(scenario): the row of the table, after two runs without a fault."""
    made: dict[str, Row] = {}

    def make(scenario: Scenario) -> Row:
        if scenario.name not in made:
            made[scenario.name] = Row(scenario=scenario, base=fault_base, runs=fault_runs)
        return made[scenario.name]

    return make
