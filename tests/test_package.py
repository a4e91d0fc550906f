"""What ships: the packages and data that pyproject.toml lists, the wheel, and the installed copy.

The repository root is the package, so a folder that nobody listed vanishes from the wheel without
a word, and a file in the root ships without being asked to.
"""

import email
import importlib.util
import os
import subprocess
import sys
from configparser import ConfigParser
from importlib.metadata import version
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest

import headcount

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parents[1]
ROOT_FILES = ("__init__.py", "__main__.py", "cli.py", "py.typed")
ROOT_FOLDERS = (
    *("arch", "audit", "commands", "convert", "evaluate", "heads", "library", "model", "page"),
    *("plan", "report", "running", "sources", "uptrain"),
)

needs_installed_wheel = pytest.mark.skipif(
    "HEADCOUNT_TEST_INSTALLED" not in os.environ,
    reason="looks at an installed wheel, as `make test` does",
)


def package_files() -> list[str]:
    """Every file of the tree that must ship, relative to the package, sorted."""
    below = [path for folder in ROOT_FOLDERS for path in (ROOT / folder).rglob("*")]
    files = [path for path in below if path.is_file() and path.suffix != ".pyc"]
    return sorted([*ROOT_FILES, *(path.relative_to(ROOT).as_posix() for path in files)])


def dotted(folder: Path) -> str:
    """The package that a folder of the tree is: `convert/plan` is `headcount.convert.plan`."""
    return ".".join(["headcount", *folder.relative_to(ROOT).parts])


@pytest.fixture(scope="module")
def setuptools_table() -> dict[str, Any]:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return dict(table["tool"]["setuptools"])


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    """A wheel of this tree, built through links so that no build folder appears in the tree."""
    tree, out = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for entry in ROOT.iterdir():
        if not entry.name.startswith(".") and entry.suffix != ".egg-info" and entry.name != "build":
            (tree / entry.name).symlink_to(entry)
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "--no-index"]
    done = subprocess.run([*pip, "--wheel-dir", out, tree], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (file,) = out.glob("*.whl")
    return ZipFile(file)


def read(wheel: ZipFile, name: str) -> str:
    """The text of one file of the wheel's dist-info folder."""
    folder = f"headcount-{headcount.__version__}.dist-info"
    return wheel.read(f"{folder}/{name}").decode()


def test_every_folder_with_modules_is_a_listed_package(setuptools_table: dict[str, Any]) -> None:
    modules = [ROOT / name for name in package_files() if name.endswith(".py")]
    assert sorted(setuptools_table["packages"]) == sorted({dotted(file.parent) for file in modules})
    assert all((file.parent / "__init__.py").is_file() for file in modules)


def test_every_pattern_for_data_matches_a_file(setuptools_table: dict[str, Any]) -> None:
    for package, patterns in setuptools_table["package-data"].items():
        folder = ROOT.joinpath(*package.split(".")[1:])
        for pattern in patterns:
            assert list(folder.glob(pattern)), f"{package}: nothing matches {pattern!r}"


def test_the_root_holds_no_other_module() -> None:
    assert {file.name for file in ROOT.glob("*.py")} == {"__init__.py", "__main__.py", "cli.py"}


def test_wheel_holds_the_package_and_nothing_else(wheel: ZipFile) -> None:
    names = [name for name in wheel.namelist() if not name.endswith("/")]
    about = f"headcount-{headcount.__version__}.dist-info/"
    shipped = {name for name in names if not name.startswith(about)}
    wanted = {f"headcount/{name}" for name in package_files()}
    assert wanted - shipped == set(), "missing: see packages and package-data in pyproject.toml"
    assert shipped - wanted == set()


def test_wheel_has_both_commands_and_the_licence(wheel: ZipFile) -> None:
    points = ConfigParser()
    points.read_string(read(wheel, "entry_points.txt"))
    expected = {"headcount": "headcount.cli:main", "audit": "headcount.cli:audit_main"}
    assert dict(points["console_scripts"]) == expected
    assert "Apache License" in read(wheel, "licenses/LICENSE")


def test_base_install_is_light(wheel: ZipFile) -> None:
    about = email.message_from_string(read(wheel, "METADATA"))
    base = [line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.split(">=")[0] for line in base) == ["click", "huggingface_hub", "tabulate"]
    assert about["Requires-Python"] == ">=3.10"


def test_the_extra_for_uptraining_is_that_for_converting_and_more() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = table["project"]["optional-dependencies"]
    more = {*extras["uptrain"]} - {*extras["convert"]}
    assert len(extras["uptrain"]) == len(extras["convert"]) + len(more)
    assert more == {entry for entry in extras["test"] if entry.startswith("accelerate")}


def test_the_extra_for_tasks_is_that_for_converting_and_the_harness() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    extras = table["project"]["optional-dependencies"]
    (more,) = {*extras["tasks"]} - {*extras["convert"]}
    assert more.startswith("lm_eval>=") and len(extras["tasks"]) == len(extras["convert"]) + 1


@needs_installed_wheel
def test_tests_import_the_installed_wheel_and_not_the_tree() -> None:
    assert "site-packages" in Path(headcount.__file__).resolve().parts
    assert importlib.util.find_spec("audit") is None, "the root is on sys.path: run `pytest`"
    assert version("headcount") == headcount.__version__


@needs_installed_wheel
def test_no_module_of_the_tree_is_loaded_as_a_second_copy() -> None:
    paths = {Path(file) for m in sys.modules.values() if (file := getattr(m, "__file__", None))}
    tops = {path.relative_to(ROOT).parts[0] for path in paths if path.is_relative_to(ROOT)}
    assert tops.isdisjoint({*ROOT_FILES, *ROOT_FOLDERS})
    assert "tests" in tops


@needs_installed_wheel
def test_installed_wheel_is_of_this_tree() -> None:
    installed = Path(headcount.__file__).parent
    stale = [
        name
        for name in package_files()
        if not (installed / name).is_file()
        or (installed / name).read_bytes() != (ROOT / name).read_bytes()
    ]
    assert not stale, "run `make install`"
