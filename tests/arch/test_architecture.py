"""What a relative has from its parent, and that no lineage forgets one of its values."""

from importlib import import_module

import pytest

from headcount.arch.architecture import Architecture, Conversion, Stored, Verification
from headcount.arch.attention.shape import AttentionShape
from headcount.arch.body.body import Body
from headcount.arch.gguf.form import Gguf
from headcount.arch.registry import index, lineage

PARENT = Architecture(
    types=("parent",),
    attention=AttentionShape(qkv_bias=True, norm="head"),
    body=Body(norms=4),
    rotary="halves",
    spellings=("Parent",),
    uncounted="a tower",
    stacks={"blocks": "vision"},
    gguf=(Gguf(architecture="parent"),),
    conversion=Conversion(by_layer=True),
    stored=Stored(more_rows=1),
    verification=Verification(scattered=True),
)


def test_a_relative_has_the_parents_design_and_none_of_its_findings() -> None:
    relative = PARENT.relative("child")
    assert relative == Architecture(
        types=("child",), attention=PARENT.attention, body=PARENT.body, rotary="halves"
    )


def test_a_dict_changes_fields_of_a_nested_value() -> None:
    relative = PARENT.relative("child", attention={"norm": "none"}, conversion=Conversion(only=1))
    assert relative.attention == AttentionShape(qkv_bias=True)
    assert relative.conversion == Conversion(only=1)


@pytest.mark.parametrize("module", sorted(set(index()["types"].values())))
def test_a_lineage_lists_all_of_its_values(module: str) -> None:
    values = vars(import_module(f"headcount.arch.{module}")).values()
    named = {t for one in values if isinstance(one, Architecture) for t in one.types}
    here = {t for t, home in index()["types"].items() if home == module}
    assert {t for one in lineage(module) for t in one.types} == here
    assert {t for t in named if t not in index()["types"]} == set()
