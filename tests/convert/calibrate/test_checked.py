"""`convert --check`: what it says may have moved the logits."""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main

pytestmark = pytest.mark.needs_convert

FITTED = ("--calibration", "builtin", "--calibration-tokens", "1k")
MOVED = {
    ("--latent", "1/4"): "Keys and values are rebuilt from latents of fewer elements: this shows",
    ("--latent", "1/1"): "Keys and values are rebuilt from latents of as many elements: this shows",
    ("--latent", "1/2", "--home", "mla"): "of fewer elements, and one key that rotates stands for"
    " those of all heads: this shows",
    ("--kv-heads", "1"): "Heads were merged that were not equal: this shows",
    ("--kv-heads", "1", "--quality", "good", *FITTED): "Heads were merged that were not equal, and"
    " weights were fitted anew: this shows",
    ("--prune-heads", "2"): "gave nothing. No heads were merged: the logits must be equal, but",
    ("--prune-heads", "2", "--refit", "output", *FITTED): "gave nothing. No heads were merged, and"
    " weights were fitted anew: this shows",
}


@pytest.mark.parametrize("options", MOVED)
def test_it_says_why_logits_may_move(
    options: tuple[str, ...], make_model: Callable[..., Path], tmp_path: Path
) -> None:
    source = make_model("llama", num_key_value_heads=2)
    command = ["convert", str(source), str(tmp_path / "out"), *options, "--check"]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 0, result.stderr
    assert MOVED[options] in " ".join(result.stdout.split())
