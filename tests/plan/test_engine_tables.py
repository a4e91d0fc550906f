"""docs/engines.md and docs/planning.md show what the planner gives today."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_tables_of_the_pages_are_those_of_the_planner() -> None:
    command = [sys.executable, str(ROOT / "tools" / "engine_tables.py"), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
