"""In a folder full of modules that have the names of those we import, none of them is imported."""

import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model

MakeFolder = Callable[..., Path]
MARKER = "imported.txt"
OURS = ("arch", "audit", "cli", "commands", "convert", "model", "plan", "report", "sources")
SAFE = pytest.mark.skipif(sys.version_info < (3, 11), reason="-P came with Python 3.11")


def installed() -> set[str]:
    """Every name that could be imported: the standard library's, what is installed, our rooms."""
    found = {*sys.stdlib_module_names, *importlib.metadata.packages_distributions(), *OURS}
    return {name for name in found if name.isidentifier()} - {"headcount", "__main__"}


@pytest.fixture(scope="session")
def before_any_program(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What `python -m` has imported before it runs the first line of any package."""
    place = tmp_path_factory.mktemp("probe")
    (place / "probe").mkdir()
    (place / "probe" / "__main__.py").write_text("import sys; print(*sys.modules)")
    done = subprocess.run(
        [sys.executable, "-m", "probe"], cwd=place, capture_output=True, text=True, check=True
    )
    return {name.partition(".")[0] for name in done.stdout.split()}


def make_hostile(folder: Path, names: set[str]) -> None:
    """Each module writes down that it was imported, beside the folder."""
    marker = folder.parent / MARKER
    for name in names:
        text = f"open({str(marker)!r}, 'a').write({name!r} + chr(10))\nraise SystemExit(97)\n"
        (folder / f"{name}.py").write_text(text)


def run_in(folder: Path, python: tuple[str, ...], *arguments: str) -> None:
    """Runs headcount in `folder` and asserts that it does its work, with modules of its own."""
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, *python, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    marker = folder.parent / MARKER
    assert not marker.exists(), marker.read_text()
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.strip()


AS_MODULE = ("-m", "headcount")
LIGHT = [
    ("audit", ".", "--fail-on", "never"),
    ("plan", ".", "--device", "h100"),
    ("--help",),
]


@pytest.mark.parametrize("arguments", LIGHT, ids=lambda words: words[0])
def test_nothing_of_the_folder_is_imported(
    arguments: tuple[str, ...], tmp_path: Path, before_any_program: set[str]
) -> None:
    folder = write_model(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    make_hostile(folder, installed() - before_any_program)
    run_in(folder, AS_MODULE, *arguments)


@SAFE
def test_nothing_at_all_with_the_switch_of_python(tmp_path: Path) -> None:
    """With -P even what Python imports by itself is its own, and the first entry is not ours."""
    folder = write_model(tmp_path / "model", LLAMA_CONFIG, llama_shapes())
    make_hostile(folder, installed())
    run_in(folder, ("-P", *AS_MODULE), *LIGHT[0])


def test_an_entry_of_the_users_own_stays(tmp_path: Path) -> None:
    """PYTHONPATH names the current folder first, and -I or -P makes no entry: that one is kept."""
    program = (
        "import sys, runpy; sys.path.insert(0, {path!r});"
        " sys.argv = ['headcount', '--version']\n"
        "try: runpy.run_module('headcount', run_name='__main__', alter_sys=True)\n"
        "except SystemExit: print(sys.path[0] == {path!r})"
    )
    for flags, kept in (((), "False"), (("-P",), "True")):
        if flags and sys.version_info < (3, 11):
            continue
        done = subprocess.run(
            [sys.executable, *flags, "-c", program.format(path=str(tmp_path.resolve()))],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.stdout.splitlines()[-1] == kept, done.stderr


@pytest.mark.needs_convert
@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("convert", ".", "../out", "--kv-heads", "1", "--check"),
        ("evaluate", ".", "--text", "../prose.txt", "--max-tokens", "64", "--no-speed"),
        ("convert", ".", "../out", "--kv-heads", "1", "--allow-pickle"),
    ],
    ids=("convert", "evaluate", "pickle"),
)
def test_nothing_of_the_folder_is_imported_by_what_runs_models(
    arguments: tuple[str, ...],
    save_model: MakeFolder,
    text_file: Path,
    before_any_program: set[str],
) -> None:
    import torch
    from safetensors.torch import load_file

    folder = save_model("llama")
    assert text_file.parent == folder.parent
    if "--allow-pickle" in arguments:
        weights = folder / "model.safetensors"
        torch.save(load_file(weights), folder / "pytorch_model.bin")
        weights.unlink()
    make_hostile(folder, installed() - before_any_program)
    run_in(folder, AS_MODULE, *arguments)
