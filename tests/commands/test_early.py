"""What a command can refuse at once it refuses before it imports torch, which takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from checkpoints import LLAMA_CONFIG, llama_shapes, write_model

PROGRAM = """
import json, sys
from click.testing import CliRunner
from headcount.cli import main
done = CliRunner().invoke(main, json.loads(sys.argv[1]))
print(json.dumps([done.exit_code, done.stderr, "torch" in sys.modules]))
"""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["heads", "nowhere"], "nowhere: not a folder; give one with config.json"),
        (["heads", ".", "--against", "nowhere"], "nowhere: not a folder"),
        (["evaluate", "nowhere"], "nowhere: not a folder; give one with config.json"),
        (["uptrain", ".", "--teacher", "nowhere", "--text", "t"], "nowhere: not a folder"),
        (["evaluate", ".", "--text", "nowhere.txt"], "nowhere.txt: no such file"),
        (["uptrain", ".", "--teacher", ".", "--pairs", "no.tsv"], "no.tsv: no such file"),
        (["heads", ".", "--importance", "--text", "nowhere.txt"], "nowhere.txt: no such file"),
        (
            ["convert", ".", "out", "--kv-heads", "1", "--evaluate", "--text", "no.txt"],
            "no.txt: no such file",
        ),
        (
            ["convert", ".", "out", "--kv-heads", "1", "--calibration", "nowhere.txt"],
            "nowhere.txt: no such file; --calibration takes a file of UTF-8 text, or builtin",
        ),
    ],
)
def test_what_is_not_there_is_said_at_once(tmp_path: Path, arguments: list[str], said: str) -> None:
    code, message, is_heavy = _run(tmp_path, arguments)
    assert (code, is_heavy) == (2, False) and said in message


def _run(place: Path, arguments: list[str]) -> tuple[int, str, bool]:
    """Exit status, standard error, and whether torch was imported."""
    command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    code, message, is_heavy = json.loads(done.stdout)
    return code, message, is_heavy


# Of what a plan refuses, whatever the model: nothing of it reads a tensor.
OF_A_MODEL = [
    ("convert nosuch out --kv-heads 1", "nosuch: not a folder"),
    ("convert mha mha --kv-heads 1", "mha: is the source itself"),
    ("convert mha taken --kv-heads 1", "taken: "),
    ("convert mha out --kv-heads 3", "cannot be pooled to 3"),
    ("convert mha out --latent 0", "a latent of 0"),
    ("convert mha out --latent 4096", "a latent of 4,096 saves nothing"),
    ("convert mha out --latent 0 --home mla", "a latent of 0"),
    ("convert mha out --kv-heads 2 --quality good", "--quality good needs text that the source is"),
    ("convert mha out --format gguf --latent 1/4", "does not go with --latent"),
    ("convert mha --sweep 2,many", "'many' is no number of K/V heads"),
    ("convert mha --sweep 3", "cannot be pooled to 3"),
    ("convert mha --sweep 2,1 --sweep-methods nice", "'nice' is not one of"),
    ("convert mha taken --sweep 2,1 --max-delta-loss 1", "taken: exists"),
    ("uptrain mha --teacher mha", "mha: nothing to learn from: give --text FILE"),
    ("uptrain mha --teacher mha --pairs taken/notes.txt", "of a decoder give --text"),
    ("uptrain mha --teacher mha --text taken/notes.txt --pairs taken/notes.txt", "give one of"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model and one that is taken."""
    found = tmp_path_factory.mktemp("early")
    config = {**LLAMA_CONFIG, "num_attention_heads": 8, "num_key_value_heads": 8}
    write_model(found / "mha", config, llama_shapes(config))
    (found / "taken").mkdir()
    (found / "taken" / "notes.txt").write_text("mine")
    return found


@pytest.mark.parametrize(("line", "said"), OF_A_MODEL)
def test_what_a_plan_refuses_is_said_before_torch_is_imported(
    place: Path, line: str, said: str
) -> None:
    code, message, is_heavy = _run(place, line.split())
    assert (code, is_heavy) == (2, False), message
    assert said in message


@pytest.mark.parametrize("what", ["--kv-heads 2", "--latent 1/4", "--latent 1/4 --home mla"])
def test_a_plan_alone_imports_no_torch(place: Path, what: str) -> None:
    code, message, is_heavy = _run(place, ["convert", "mha", "out", *what.split(), "--dry-run"])
    assert (code, is_heavy) == (0, False), message
