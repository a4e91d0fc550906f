"""What an evaluation against an original says of the roles of heads."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
BRIEF = ("--max-tokens", "64", "--no-speed", "--behaviour", "none")


def run(*arguments: object) -> str:
    result = CliRunner().invoke(main, [str(one) for one in arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def evaluated(model: Path, against: Path, *more: str) -> dict[str, Any]:
    text = run("evaluate", model, "--against", against, *BRIEF, "--format", "json", *more)
    found: dict[str, Any] = json.loads(text)
    return found


@pytest.fixture
def converted(save_model: SaveModel, tmp_path: Path) -> tuple[Path, Path]:
    source = save_model("llama")
    run("convert", source, tmp_path / "mqa", "--kv-heads", "1")
    return tmp_path / "mqa", source


def test_it_says_what_heads_against_says(converted: tuple[Path, Path]) -> None:
    model, source = converted
    compared = json.loads(run("heads", model, "--against", source, "--format", "json"))
    section = evaluated(model, source)["roles"]
    for seconds in (compared["cost"], section["cost"]):
        assert {one.pop("seconds") > 0 for one in seconds.values()} == {True}
    assert section == {key: compared[key] for key in section} and section["heads"]["gone"] == 0
    assert "layers" not in section


def test_the_table_has_the_verdict(converted: tuple[Path, Path]) -> None:
    text = run("evaluate", converted[0], "--against", converted[1], *BRIEF)
    assert "  Roles of heads  " in text


def test_without_roles_there_is_none(converted: tuple[Path, Path]) -> None:
    assert evaluated(*converted, "--no-roles")["roles"] is None
    alone = json.loads(run("evaluate", converted[0], *BRIEF, "--format", "json"))
    assert alone["roles"] is None


def test_heads_that_cannot_be_compared_are_said_and_the_rest_is_measured(
    save_model: SaveModel,
) -> None:
    model, other = save_model("llama"), save_model("llama", folder="other", num_hidden_layers=3)
    document = evaluated(model, other)
    assert document["roles"] is None and document["kl_divergence"] > 0
    (warning,) = (line for line in document["warnings"] if line.startswith("roles of heads"))
    assert "2 attentions in its decoder" in warning
