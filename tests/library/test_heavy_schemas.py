"""The documents of the commands that run models, against the schemas that ship."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from headcount.library.schemas import schema_of

jsonschema = pytest.importorskip("jsonschema", reason="is in the extra test")
pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed"]
FEW = ["--tokens", "16", "--sequences", "2"]


def checked(*arguments: str) -> Any:
    """The document of a command, held against its schema."""
    result = CliRunner().invoke(main, [*arguments, "--format", "json"])
    assert result.exit_code == 0, result.stderr
    document = json.loads(result.stdout)
    found = jsonschema.Draft202012Validator(schema_of(arguments[0])).iter_errors(document)
    assert [jsonschema.exceptions.best_match([one]).message[:500] for one in found] == []
    return document


def refused(command: str, document: object) -> bool:
    return not jsonschema.Draft202012Validator(schema_of(command)).is_valid(document)


def test_conversions(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = str(save_model("llama")), str(tmp_path / "out")
    checked("convert", source, target, "--kv-heads", "1", "--dry-run")
    record = checked("convert", source, target, "--kv-heads", "1")
    assert refused("convert", {**record, "more": 1})
    assert refused("convert", {**record, "layers": [{**record["layers"][0], "more": 1}]})
    checked("convert", source, "--verify", target)
    fast = ["--kv-heads", "1", "--quality", "fast", "--dtype", "float16"]
    both = checked(
        "convert", source, str(tmp_path / "fast"), *fast, "--check", "--evaluate", *SHORT
    )
    assert both["check"]["problems"] == [] and both["evaluation"]["model"]["loss"] > 0
    assert refused("convert", {**both, "check": {**both["check"], "more": 1}})
    checked("convert", source, str(tmp_path / "latent"), "--latent", "1/2")
    checked("convert", source, str(tmp_path / "pruned"), "--prune-heads", "1/2")
    checked("convert", "--families")


def test_evaluations_and_sweeps(save_model: SaveModel) -> None:
    source = str(save_model("llama"))
    document = checked("evaluate", source, "--against", source, *SHORT)
    assert refused("evaluate", {**document, "more": 1})
    assert refused("evaluate", {k: v for k, v in document.items() if k != "delta_loss"})
    checked("evaluate", source, "--max-tokens", "64", "--behaviour", "none", "--no-roles")
    checked("convert", source, "--sweep", "1", "--max-tokens", "64")


def test_heads(save_model: SaveModel) -> None:
    source = str(save_model("llama"))
    atlas = checked("heads", source, *FEW)
    assert refused("heads", {**atlas, "more": 1})
    checked("heads", source, "--against", source, *FEW)
    checked("heads", source, "--importance", "--max-tokens", "64")
