"""What holds for every test: no network, one thread, and skips that say what is missing."""

import importlib.util
import os
import signal
import sys

# Read by the libraries when they are imported, so set before any test module is.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"
# Torch's threads, without importing torch here: models this small only wait for a second one, and
# the other core has a worker of its own.
os.environ["OMP_NUM_THREADS"] = "1"
# xdist tells its workers how wide the terminal is; no test prints to one.
os.environ.pop("COLUMNS", None)

import pytest
from hypothesis import settings

settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# A shell starts what it runs in the background with signals ignored, and children inherit that.
# Tests of signals want them as a terminal gives them; a handler is reset in a child.
for _name, _handler in (("SIGINT", signal.default_int_handler), ("SIGHUP", signal.SIG_DFL)):
    if hasattr(signal, _name) and signal.getsignal(getattr(signal, _name)) == signal.SIG_IGN:
        signal.signal(getattr(signal, _name), _handler)

# models that several rooms test with, and limits within reach
pytest_plugins = ("causal_fixtures", "checkpoint_fixtures", "lowered_limits")

_CONVERT_EXTRA = ("torch", "transformers", "safetensors", "tqdm")
if os.environ.get("HEADCOUNT_TEST_LIGHT"):  # as on an install without the extra
    sys.modules.update(dict.fromkeys(_CONVERT_EXTRA))  # type: ignore[arg-type]
_MISSING = [name for name in _CONVERT_EXTRA if importlib.util.find_spec(name) is None]
if _MISSING:
    collect_ignore = [
        "convert",
        "evaluate",
        "faults",
        "heads",
        "running",
        "uptrain",
    ]  # they import torch


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `needs_convert` on a base install; `make test` runs every one of them."""
    if not _MISSING or os.environ.get("HEADCOUNT_TEST_INSTALLED"):
        return
    skip = pytest.mark.skip(reason=f"needs the convert extra: no {', '.join(_MISSING)}")
    for item in items:
        if item.get_closest_marker("needs_convert"):
            item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many cells of the table of faults (tests/faults) were tried."""
    passed = terminalreporter.getreports("passed")
    cells = [
        value
        for report in passed
        for name, value in report.user_properties
        if name == "fault cells"
    ]
    for is_sample in (True, False):
        chosen = [cell for cell in cells if (cell[0] == "sample") == is_sample]
        if chosen:
            rows, columns = ({cell[place] for cell in chosen} for place in (0, 1))
            what = f"{len(rows)} commands x {len(columns)} kinds of faults x their calls"
            total = sum(cell[2] for cell in chosen)
            terminalreporter.write_line(
                f"faults: {total:,} cells held ({'a sample' if is_sample else what})"
            )
