"""Inputs that grow tenfold: the time grows no more than in proportion, the memory stays within 20
times their bytes and 100 MB, and what is printed stays short.

No time is compared with a figure, only with that of a tenth of the same input in the same process.
"""

import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from large_inputs import INPUTS
from measured_command import measure

# What a fast run looks at: one input for each kind of parser and of work.
SAMPLE = (
    *("missing_shards", "tensors_of_no_layer", "lists_of_other_models", "long_names"),
    *("tokens_outside", "objects_of_a_config", "gguf_strings", "pickled_tensors"),
    "starts_of_a_log",
)
# A quadratic would grow a hundredfold.
BOUND = 20
NOISE = 0.01  # seconds that are nothing
LONGEST_OUTPUT = 100_000  # characters


def seconds(arguments: list[str], runs: int) -> float:
    """The least processor time of `runs` runs."""
    least = float("inf")
    for _ in range(runs):
        start = time.process_time()
        done = CliRunner().invoke(main, arguments)
        least = min(least, time.process_time() - start)
        assert done.exit_code in (0, 1), done.output[-1000:]
        assert len(done.output) < LONGEST_OUTPUT
    return least


def check_time(name: str, folder: Path, small: int) -> None:
    make = INPUTS[name].make
    asked = []
    for n in (small // 10, small, 10 * small):
        (folder / str(n)).mkdir()
        asked.append(make(folder / str(n), n))
    said = []
    for _ in range(4):  # another process may have been in the way of one of the three
        fixed = seconds(asked[0], runs=2)
        once = max(seconds(asked[1], runs=2) - fixed, NOISE)
        tenfold = seconds(asked[2], runs=1) - fixed
        if tenfold <= BOUND * once:
            return
        said.append(f"{once:.3f} s for {small}, {tenfold:.3f} s for ten times that")
    raise AssertionError("; ".join(said))


def check_memory(name: str, folder: Path, n: int) -> None:
    asked = INPUTS[name].make(folder, n)
    nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    found = measure(asked)
    assert found.exit_code in (0, 1), found.stderr
    assert found.peak <= 20 * nbytes + 100_000_000, f"{found.peak:,} for {nbytes:,} bytes"


@pytest.mark.parametrize("name", SAMPLE)
def test_time_grows_with_the_input(name: str, tmp_path: Path) -> None:
    check_time(name, tmp_path, INPUTS[name].n // 2)


linux = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")


@linux
@pytest.mark.parametrize("name", ["missing_shards", "vocabulary"])
def test_memory_grows_with_the_input(name: str, tmp_path: Path) -> None:
    check_memory(name, tmp_path, 10 * INPUTS[name].n)


@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_time_grows_with_each_input(name: str, tmp_path: Path) -> None:
    check_time(name, tmp_path, INPUTS[name].n)


@linux
@pytest.mark.slow
@pytest.mark.parametrize("name", INPUTS)
def test_memory_grows_with_each_input(name: str, tmp_path: Path) -> None:
    check_memory(name, tmp_path, 10 * INPUTS[name].n)
