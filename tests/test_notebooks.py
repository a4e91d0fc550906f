"""The notebooks of the docs run, and show what is stored in them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "notebooks"


@pytest.mark.parametrize(
    "name", ["planning", pytest.param("converting", marks=pytest.mark.needs_convert)]
)
def test_a_notebook_runs_and_shows_what_is_stored(name: str) -> None:
    tool = [sys.executable, str(ROOT / "tools" / "notebooks.py")]
    done = subprocess.run([*tool, "--check", name], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_code_cell_was_run_and_none_failed() -> None:
    paths = sorted(FOLDER.glob("*.ipynb"))
    assert [path.stem for path in paths] == ["converting", "planning"]
    for path in paths:
        notebook = json.loads(path.read_text(encoding="utf-8"))
        cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
        assert [cell["execution_count"] for cell in cells] == [*range(1, len(cells) + 1)]
        assert sum(bool(cell["outputs"]) for cell in cells) >= len(cells) - 2
