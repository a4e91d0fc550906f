"""How tools/built_classes.py learns what a class holds; and its table, against transformers."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import headcount

ROOT = Path(__file__).parents[2]
TABLE = Path(headcount.__file__).parent / "arch" / "generated" / "built_classes.jsonl"
SIZES = [
    {"hidden_size": 64, "num_labels": 3, "layers": 2, "max_position_embeddings": 64},
    {"hidden_size": 96, "num_labels": 5, "layers": 3, "max_position_embeddings": 72},
    {"hidden_size": 64, "num_labels": 7, "layers": 2, "max_position_embeddings": 80},
]

pytestmark = pytest.mark.needs_convert


@pytest.fixture(scope="module")
def tool() -> Iterator[ModuleType]:
    pytest.importorskip("transformers")
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "built_classes.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["tool"] = module  # its dataclasses look it up
    spec.loader.exec_module(module)
    yield module
    sys.path[:] = before


@pytest.mark.parametrize(
    ("side", "terms"),
    [
        ((64, 96, 64), [(1, ("hidden_size",))]),
        ((3, 5, 7), [(1, ("num_labels",))]),
        ((192, 288, 192), [(3, ("hidden_size",))]),
        ((66, 74, 82), [(1, ("max_position_embeddings",)), (2, ())]),
        ((3, 4, 3), [(1, ("layers",)), (1, ())]),
        ((67, 101, 71), [(1, ("num_labels",)), (1, ("hidden_size",))]),
        ((256, 576, 256), [(2, ("hidden_size", "layers"))]),
        ((1, 1, 1), [(1, ())]),
    ],
)
def test_a_side_of_a_tensor_is_told_by_keys(
    tool: ModuleType, side: tuple[int, ...], terms: list[tuple[int, tuple[str, ...]]]
) -> None:
    assert tool.sum_of_keys(side, SIZES) == terms


@pytest.mark.parametrize("side", [(11, 13, 17), (3, 3, 3)], ids=["of no key", "too few"])
def test_a_side_that_is_not_told_is_no_guess(tool: ModuleType, side: tuple[int, ...]) -> None:
    with pytest.raises(tool.NotTold):
        tool.sum_of_keys(side, SIZES)


def test_a_tensor_is_there_by_one_key(tool: ModuleType) -> None:
    flags = [{"a": True, "b": False}, {"a": True, "b": True}, {"a": False, "b": True}]
    assert tool.when([True, True, True], flags) == ()
    assert tool.when([True, True, False], flags) == ("?a",)
    assert tool.when([True, False, False], flags) == ("!b",)
    with pytest.raises(tool.NotTold):
        tool.when([False, True, False], flags)


def test_a_class_may_be_a_part_of_the_base_class(tool: ModuleType) -> None:
    base = {"encoder.layers.0.w": (2, 2), "decoder.layers.0.w": (3, 3)}
    assert tool.placed({"layers.0.w": (3, 3)}, base) == {"decoder.layers.0.w": (3, 3)}
    assert tool.placed({"m.encoder.layers.0.w": (2, 2)}, base) == {"encoder.layers.0.w": (2, 2)}


@pytest.mark.slow
@pytest.mark.parametrize("model_type", ["bart", "bert", "clip", "llama", "t5", "whisper"])
def test_the_table_is_what_transformers_builds(tool: ModuleType, model_type: str) -> None:
    rows = TABLE.read_text(encoding="utf-8").splitlines()
    row = next(line for line in rows if json.loads(line).get("model_type") == model_type)
    assert tool.line(model_type) == row
