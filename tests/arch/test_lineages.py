"""The index of lineages is what its tool makes of their files, a new file among them."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from headcount.arch import registry

TOOL = Path(__file__).parents[2] / "tools" / "lineages.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("lineages_tool", TOOL)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_index_names_every_type_of_every_file(tool: ModuleType) -> None:
    assert registry.index() == tool.table()


def test_every_folder_of_lineages_is_read(tool: ModuleType) -> None:
    folders = {file.parent.name for file in tool.ROOT.rglob("*.py") if declares(file)}
    assert folders == set(tool.ROOMS)


def declares(file: Path) -> bool:
    return "\nARCHITECTURES = (" in file.read_text(encoding="utf-8")
