"""Imports go one way, down the floors of the house, and an audit loads nothing heavy."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import headcount

PACKAGE = Path(headcount.__file__).parent
HEAVY = {"torch", "transformers", "safetensors", "numpy", "tokenizers"}

# Runs a command as a user's shell would, then says which of the heavy modules it loaded.
RUN = f"""
import sys
from headcount.cli import main
main(sys.argv[1:], standalone_mode=False)
print(sorted({sorted(HEAVY | {"huggingface_hub", "tqdm"})!r} & sys.modules.keys()), file=sys.stderr)
"""


def imported(file: Path) -> Iterator[str]:
    """The full name of every module that a file imports anywhere, functions included."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def files_importing(folder: str, prefixes: set[str]) -> list[str]:
    """Lines `file imports module` for modules at or below one of the prefixes."""
    return [
        f"{file.relative_to(PACKAGE)} imports {name}"
        for file in sorted((PACKAGE / folder).rglob("*.py"))
        for name in imported(file)
        if any(f"{name}.".startswith(f"{prefix}.") for prefix in prefixes)
    ]


LIGHT = ("model", "report", "arch", "sources", "audit", "plan")
HEAVY_ROOMS = {f"headcount.{room}" for room in ("running", "convert", "evaluate", "uptrain")}


@pytest.mark.parametrize("room", LIGHT)
def test_the_light_half_never_imports_the_heavy_one(room: str) -> None:
    assert files_importing(room, HEAVY | HEAVY_ROOMS | {"headcount.cli"}) == []


def test_convert_never_imports_the_command_line() -> None:
    assert files_importing("convert", {"headcount.cli"}) == []
    assert files_importing("convert", {"headcount.audit"}), "the check found no import at all"


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["audit", "gpt2"], "gpt2"),
        (["audit", "llama-3-8b", "--format", "json"], '"num_key_value_heads": 8'),
        (["plan", "llama-3-8b", "--context", "8k"], "Meta-Llama-3-8B"),
        (["--help"], "Usage:"),
        (["convert", "--help"], "Usage:"),
        (["uptrain", "--help"], "Usage:"),
    ],
)
def test_commands_of_the_light_half_load_nothing_heavy(
    arguments: list[str], output: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert output in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"
