"""The model card of a conversion: how it is loaded, and what an evaluation found."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import ModelCard

from conversions import run, small_whisper
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed", "--behaviour", "none", "--no-roles"]


def invoked(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, *SHORT])


def figures(folder: Path) -> dict[str, list[str]]:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", card(folder), flags=re.M)
    return {title: [own, other] for title, own, other in rows}


def card(folder: Path) -> str:
    return str(ModelCard.load(folder / "README.md").content)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("llama", {}),
        ("gpt2", {}),
        ("llama", {"latent": 8}),
        ("whisper", {}),
    ],
)
def test_its_lines_load_the_model(
    save_model: SaveModel, tmp_path: Path, name: str, options: dict[str, int]
) -> None:
    target = tmp_path / "out"
    if name == "whisper":
        small_whisper(4).save_pretrained(tmp_path / name)
    source = tmp_path / name if name == "whisper" else save_model(name)
    run(source, target, None if options else 1, **options)
    (lines,) = re.findall(r"```python\n(.*?)```", card(target), flags=re.S)
    found: dict[str, object] = {}
    exec(lines.replace("FOLDER", str(target)), found)
    saved = json.loads((target / "config.json").read_text())["architectures"][0]
    assert type(found["model"]).__name__ == saved
    assert ("trust_remote_code" in lines) == ("auto_map" in (target / "config.json").read_text())


def test_convert_writes_what_its_evaluation_found(save_model: SaveModel, tmp_path: Path) -> None:
    target = tmp_path / "out"
    words = ("convert", str(save_model("llama")), str(target), "--kv-heads", "1")
    result = invoked(*words, "--evaluate", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["evaluation"]
    rows = figures(target)
    losses = [f"{found[which]['loss']:.4f}" for which in ("model", "against")]
    assert rows["Loss, nats a token"] == losses
    assert rows["KL divergence, nats a token"] == [f"{found['kl_divergence']:.4f}", ""]
    assert str(tmp_path) not in card(target)
    again = CliRunner().invoke(main, list(words))
    assert "already done" in again.stdout, again.stderr
    assert CliRunner().invoke(main, ["convert", "--verify", str(target)]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()).count("out") == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_later_evaluation_takes_the_place_of_an_earlier_one(
    save_model: SaveModel, tmp_path: Path
) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    run(source, target, 1)
    before = card(target)
    words = ("evaluate", str(target), "--against", str(source))
    assert invoked(*words).exit_code == 0
    assert card(target) == before
    text = tmp_path / "own | text.txt"
    text.write_text("five words of a text, " * 50)
    for more in ((), ("--text", str(text))):
        result = invoked(*words, "--card", *more)
        assert result.exit_code == 0, result.stderr
    assert card(target).count("## Evaluation") == 1
    assert card(target).startswith(before.rstrip())
    assert "own" in card(target).split("## Evaluation")[1]


def test_a_card_that_is_not_ours_is_left_alone(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    result = invoked("evaluate", str(source), "--card")
    assert result.exit_code == 2
    assert "no output of headcount" in result.stderr
    run(source, target, 1)
    with (target / "README.md").open("a") as file:
        file.write("My own words.\n")
    mine = card(target)
    result = invoked("evaluate", str(target), "--card")
    assert result.exit_code == 2
    assert "by hand" in result.stderr
    assert card(target) == mine
