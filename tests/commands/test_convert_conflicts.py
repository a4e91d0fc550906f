"""Options of `convert` that others make useless are refused, before anything is read."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main

ONE = "source target --kv-heads 2 "
SWEEP = "source --sweep 4,2 "


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (ONE + "--sweep-methods mean", "--sweep-methods is for --sweep"),
        (ONE + "--max-delta-loss 1", "--max-delta-loss is for --sweep"),
        (ONE + "--by-layer", "--by-layer is for --sweep"),
        (ONE + "--text prose.txt", "--text is for --evaluate or --sweep"),
        (ONE + "--check --max-tokens 256", "--max-tokens is for --evaluate or --sweep"),
        (SWEEP + "--kv-heads 2", "--kv-heads does not go with --sweep"),
        (SWEEP + "--dry-run", "--dry-run does not go with --sweep"),
        (SWEEP + "--check", "--check does not go with --sweep"),
        (SWEEP + "--evaluate", "--evaluate does not go with --sweep"),
        (SWEEP + "--overwrite", "--overwrite does not go with --sweep"),
        (SWEEP + "--speed", "--speed does not go with --sweep"),
        (SWEEP + "--sweep-methods mean --method first", "--method does not go with --sweep-m"),
        (SWEEP + "--sweep-methods mean --quality good", "--quality does not go with --sweep-m"),
        (SWEEP + "--quality good --method first", "--quality does not go with --method in a sweep"),
        ("--families --kv-heads 2", "--kv-heads does not go with --families"),
        ("source --families", "SOURCE does not go with --families"),
    ],
)
def test_an_option_without_a_use_is_refused(arguments: str, words: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(main, ["convert", *arguments.split()])
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
