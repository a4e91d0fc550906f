"""How many tokens of a text a source reads at a time, when it is calibrated."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file

from headcount.cli import main

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
WAYS = {
    "heads": ("--kv-heads", "2", "--quality", "good"),
    "latents": ("--latent", "1/4", "--quality", "good"),
    "budget": ("--latent", "--budget", "1/4", "--quality", "fast"),
    "pruned": ("--prune-heads", "1/4", "--quality", "fast"),
}


@pytest.fixture
def run(tmp_path: Path, make_model: MakeModel, prose: Path) -> Callable[..., Result]:
    """`run(name, *options)`: converts a Llama, calibrated on the prose, to tmp_path / name."""

    def command(name: str, *options: object, source: Path | None = None) -> Result:
        model = source or make_model("llama", max_position_embeddings=4096)
        words = ["convert", model, tmp_path / name, *options]
        tokens = () if "--calibration-tokens" in options else ("--calibration-tokens", "4096")
        words += ["--calibration", prose, *tokens]
        return CliRunner().invoke(main, [str(word) for word in words])

    return command


def record(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "conversion.json").read_text())
    return found


# Tokens, the rows of them that there are by themselves, and those that are asked for.
CUTS = {
    "latents": (4096, 512, 1024),
    **dict.fromkeys(("heads", "budget", "pruned"), (512, 128, 64)),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_are_as_long_as_is_asked_for(
    way: str, run: Callable[..., Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every layer is run on them, and what is made of them is something else."""
    from headcount.convert.calibrate import calibration_text

    seen, cut = [], calibration_text.cut_rows

    def noted(*args: Any, **options: Any) -> Any:
        seen.append(cut(*args, **options))
        return seen[-1]

    monkeypatch.setattr(calibration_text, "cut_rows", noted)
    tokens, *lengths = CUTS[way]
    for name, length in zip(("default", "asked"), lengths, strict=True):
        asked = () if name == "default" else ("--calibration-row-tokens", length)
        done = run(name, *WAYS[way], "--calibration-tokens", tokens, *asked)
        assert done.exit_code == 0, done.output
        assert seen and {text.ids.shape for text in seen} == {(tokens // length, length)}
        seen.clear()
    if way in ("heads", "latents"):
        rows = [record(tmp_path / n)["ladder"]["calibration"] for n in ("default", "asked")]
        assert [one["row_tokens"] for one in rows] == lengths
        one, two = (load_file(tmp_path / n / "model.safetensors") for n in ("default", "asked"))
        assert any(not torch.equal(one[key], two[key]) for key in one)


def test_a_batch_of_long_rows_is_one_row() -> None:
    from headcount.convert.calibrate.calibration_text import cut_rows
    from headcount.running.text import Text

    text = Text(name="x", content="", sha256="")
    found = cut_rows(torch.arange(40_000), longest=4096, least=32, seed=0, text=text)
    assert found.ids.shape == (9, 4096)
    assert {batch.stop - batch.start for batch in found.batches} == {1}


@pytest.mark.parametrize(
    ("config", "asked", "length"),
    [
        ({"max_position_embeddings": 300}, "512", 300),
        ({"max_position_embeddings": 4096}, "2k", 1024),
    ],
)
def test_rows_that_are_shorter_are_said(
    config: dict[str, int],
    asked: str,
    length: int,
    run: Callable[..., Result],
    make_model: MakeModel,
) -> None:
    """By what the model takes, and by what the text has."""
    options = ("--calibration-row-tokens", asked, "--dry-run")
    done = run("out", *WAYS["heads"], *options, source=make_model("llama", **config))
    assert done.exit_code == 0, done.output
    assert f"rows of calibration have {length:,} tokens, not" in done.output.replace("\n", " ")


def test_rows_that_take_too_much_memory_are_refused(
    run: Callable[..., Result], make_model: MakeModel, tmp_path: Path
) -> None:
    """Attention weights of 4 heads and 4 bytes: 2 GiB are 11,585 tokens squared."""
    source = make_model("llama", max_position_embeddings=100_000)
    done = run("out", *WAYS["heads"], "--calibration-row-tokens", "11586", source=source)
    assert done.exit_code == 2
    assert "--calibration-row-tokens 11,586: the attention weights of 4 heads" in done.stderr
    assert "give at most 11,585" in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("tokens", ["0", "512"])
def test_it_is_of_a_text(tokens: str, make_model: MakeModel, tmp_path: Path) -> None:
    text = ["--calibration", "builtin"] if tokens == "0" else []
    words = [*WAYS["heads"], "--calibration-row-tokens", tokens, *text]
    done = CliRunner().invoke(
        main, ["convert", str(make_model("llama")), str(tmp_path / "out"), *words]
    )
    assert done.exit_code == 2
    assert "--calibration-row-tokens" in done.stderr
