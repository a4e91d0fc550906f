"""What the command line says of fixed models is what tests/golden holds, and its figures add up.

A line that changes is written anew by tools/record_golden.py, with a reason in the commit.
"""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

import golden_files
from golden_lines import SEPARATOR

PLANS, CONVERSIONS = list(golden_files.recorded("plans")), golden_files.names("conversions")
# A fixed part of the lines that take long runs always, the rest is marked slow.
EVERY_PLAN, EVERY_CONVERSION = 5, 25


def differing(kind: str, folder: Path, only: Iterable[str] | None = None) -> list[str]:
    """Lines that are not as recorded, old above new."""
    recorded, made = golden_files.recorded(kind), golden_files.made(kind, folder, only)
    return [
        text
        for name, line in made.items()
        if line != recorded.get(name)
        for text in (f"- {recorded.get(name)}", f"+ {line}")
    ]


@pytest.mark.parametrize("kind", ["catalogue", "types"])
def test_audits_are_as_recorded(kind: str, tmp_path: Path) -> None:
    assert differing(kind, tmp_path) == []


def test_some_plans_are_as_recorded(tmp_path: Path) -> None:
    assert differing("plans", tmp_path, PLANS[::EVERY_PLAN]) == []


@pytest.mark.slow
def test_all_plans_are_as_recorded(tmp_path: Path) -> None:
    assert differing("plans", tmp_path) == []


@pytest.mark.needs_convert
def test_plans_of_some_conversions_are_as_recorded(tmp_path: Path) -> None:
    assert differing("conversions", tmp_path, CONVERSIONS[::EVERY_CONVERSION]) == []


@pytest.mark.slow
@pytest.mark.needs_convert
def test_plans_of_all_conversions_are_as_recorded(tmp_path: Path) -> None:
    assert differing("conversions", tmp_path) == []


@pytest.mark.parametrize("name", golden_files.LISTS)
def test_lists_are_as_recorded(name: str) -> None:
    path = golden_files.GOLDEN / "lists" / name
    assert golden_files.text(name) == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("kind", golden_files.KINDS)
def test_every_model_and_type_has_its_line(kind: str) -> None:
    assert list(golden_files.recorded(kind)) == golden_files.names(kind)


def test_every_type_has_a_tiny_config() -> None:
    assert golden_files.tiny_configs().keys() == set(golden_files.types())


def test_types_that_convert_have_a_checkpoint() -> None:
    """But for those that transformers 5.24 does not build here."""
    rows = golden_files.document(Path(), "convert", "--families")["families"]
    held = {row["config"]["model_type"] for row in golden_files.checkpoints().values()}
    assert {row["model_type"] for row in rows} - held == NOT_BUILT


NOT_BUILT = {"gemma3n", "jev"}  # one needs a library beyond the extra, the other's class fails
_LAYERS = re.compile(r"(\d+) x ([\d,]+) p, ([\d,]+) B: ")
_TOTALS = re.compile(r"\| ([\d,]+) attention \| ([\d,]+) B at ")


def number(text: str) -> int:
    return int(text.replace(",", ""))


@pytest.mark.parametrize("kind", ["catalogue", "types"])
def test_layers_add_up_to_the_totals(kind: str) -> None:
    for line in golden_files.recorded(kind).values():
        found = _TOTALS.search(line)
        if found is None:
            assert f"{SEPARATOR}refused: " in line
            continue
        layers = [[number(figure) for figure in row] for row in _LAYERS.findall(line)]
        assert sum(count * parameters for count, parameters, _ in layers) == number(found[1]), line
        assert sum(count * cache for count, _, cache in layers) == number(found[2]), line


_TERMS = re.compile(r"(?:^| ([+-]) )[a-z_]+ ([\d,]+)(?= [+=-] )")


_SUM = re.compile(r" = -?[\d,]+ B")


def test_the_terms_of_plans_add_up() -> None:
    for line in golden_files.recorded("plans").values():
        cell = next((cell for cell in line.split(SEPARATOR) if _SUM.search(cell)), None)
        if cell is None:
            continue
        terms = [(-1 if sign == "-" else 1) * number(size) for sign, size in _TERMS.findall(cell)]
        assert len(terms) > 1
        assert sum(terms) == number(cell.partition(" = ")[2].split(" ")[0]), line


_BUDGET = re.compile(r" = ([\d,]+) B \| budget ([\d,]+), free (-?[\d,]+) B")


def test_what_a_plan_takes_and_leaves_is_the_budget() -> None:
    found = _BUDGET.findall("\n".join(golden_files.recorded("plans").values()))
    assert len(found) > 40
    for taken, budget, free in found:
        assert number(taken) + number(free) == number(budget)


def test_steps_of_a_conversion_are_those_of_the_result() -> None:
    """Heads that are merged are in the line of a plan that changes any."""
    for name, line in golden_files.recorded("conversions").items():
        cells = line.split(SEPARATOR)
        if len(cells) > 2:
            before, after = (number(size.removesuffix(" B")) for size in cells[3].split(" -> "))
            assert after < before or "rehome" in cells[2] or "padded" in line, name
            assert re.search(r"\d+ (pool|take|fold|make)", cells[5]), name


def test_a_checkpoint_is_written_as_it_is_described(tmp_path: Path) -> None:
    row = {
        "dtype": "BF16",
        "config": {"model_type": "llama"},
        "tensors": {"a.{0-1,3}": {"b.{0,1}.w": "2x3", "c": "F32 4"}, "d": ""},
    }
    golden_files.write_checkpoint(row, tmp_path / "folder")
    raw = (tmp_path / "folder" / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    shapes = {name: tensor["shape"] for name, tensor in header.items() if name[0] != "_"}
    assert shapes["d"] == [] and shapes["a.3.c"] == [4] and shapes["a.1.b.0.w"] == [2, 3]
    assert len(shapes) == 3 * 3 + 1
    assert len(raw) == 8 + size + 6 * 12 + 3 * 16 + 2
