"""An evaluation that two processes of a launcher share: what one measures, to the last bit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from headcount.cli import main
from several_processes import broken, in_one, in_two

SaveModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
WORDS = ("--max-tokens", "300", "--window", "32", "--no-speed", "--no-roles", "--format", "json")
FAILING = """
import os
from headcount.evaluate import loss
from headcount.evaluate.errors import EvaluationFailedError

read = loss._ReadWindow.scores


def failing(self, *args, **options):
    if os.environ["RANK"] == "1":
        raise EvaluationFailedError("the model's loss of token 7 is nan")
    return read(self, *args, **options)


loss._ReadWindow.scores = failing
"""


@pytest.fixture
def words(save_model: SaveModel, tmp_path: Path) -> tuple[str, ...]:
    """The command on a model and its original."""
    source, target = save_model("llama"), tmp_path / "out"
    done = CliRunner().invoke(main, ["convert", str(source), str(target), "--kv-heads", "1"])
    assert done.exit_code == 0, done.stderr
    return ("evaluate", str(target), "--against", str(source), *WORDS)


def test_two_processes_measure_what_one_does(words: tuple[str, ...]) -> None:
    one, two = in_one(*words), in_two(*words)
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    assert without_seconds(json.loads(two.stdout)) == without_seconds(json.loads(one.stdout))


@pytest.mark.slow
def test_what_goes_wrong_in_the_other_process_is_said_once(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    done = in_two(*words, script=broken(tmp_path / "failing.py", FAILING))
    assert done.returncode != 0
    assert done.stdout == ""
    assert done.stderr.count("the model's loss of token 7 is nan") == 1


def without_seconds(value: Any) -> Any:
    """A document without times."""
    if isinstance(value, dict):
        return {key: without_seconds(v) for key, v in value.items() if "seconds" not in key}
    return value
