"""What a command can refuse at once it refuses before it imports torch, which takes seconds."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

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
    command = [sys.executable, "-c", PROGRAM, json.dumps(arguments)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    code, message, is_heavy = json.loads(done.stdout)
    assert (code, is_heavy) == (2, False) and said in message
