"""No files import each other in a circle, and commands of the light half load nothing heavy.

That imports go down the floors of the house, and which rooms are light, are contracts in
pyproject.toml that `make check` holds the tree against.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import headcount

PACKAGE = Path(headcount.__file__).parent
HEAVY = ("torch", "transformers", "safetensors", "numpy", "tokenizers", "huggingface_hub", "tqdm")

# Runs a command as a user's shell would, then says which of the heavy modules it loaded.
RUN = f"""
import sys
from headcount.cli import main
main(sys.argv[1:], standalone_mode=False)
print(sorted({set(HEAVY)!r} & sys.modules.keys()), file=sys.stderr)
"""


def modules() -> dict[str, Path]:
    """Every file of the package by its name there, such as `audit.rules.heads`."""
    found = {}
    tops = [top for top in PACKAGE.iterdir() if top.is_dir()]  # each may be a link
    for file in (*PACKAGE.glob("*.py"), *(file for top in tops for file in top.rglob("*.py"))):
        parts = file.relative_to(PACKAGE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imported(name: str, file: Path) -> Iterator[str]:
    """What a file imports of the package anywhere, functions included: `audit.rules.heads.RULES`
    for a name of a module, which may be a module itself."""
    package = name if file.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            start = "headcount"
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                start = ".".join(["headcount", *filter(None, above)])
            module = ".".join(filter(None, (start if node.level else "", node.module)))
            names = [f"{module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from (n.removeprefix("headcount.") for n in names if n.startswith("headcount."))


def graph() -> dict[str, set[str]]:
    """The files that each file imports."""
    known = modules()
    edges: dict[str, set[str]] = {}
    for name, file in known.items():
        found = ({full, full.rpartition(".")[0]} & known.keys() for full in imported(name, file))
        edges[name] = {max(names, key=len) for names in found if names} - {name}
    return edges


def test_no_files_import_each_other_in_a_circle() -> None:
    edges = graph()
    assert "model.spec" in edges["audit.audited"], "the check found no import at all"
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])))


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["audit", "gpt2"], "gpt2"),
        (["audit", "llama-3-8b", "--format", "json"], '"num_key_value_heads": 8'),
        (["plan", "llama-3-8b", "--context", "8k"], "Meta-Llama-3-8B"),
        (["explain", "gqa", "llama-3-8b"], "8 x 128"),
        (["--help"], "Usage:"),
        (["convert", "--help"], "Usage:"),
        (["evaluate", "--help"], "Usage:"),
        (["heads", "--help"], "Usage:"),
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
