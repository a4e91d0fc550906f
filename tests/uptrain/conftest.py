"""A tiny model, what a conversion makes of it, and the commands on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner, Result

from causal_models import build_model, make_tokenizer, sample_text
from headcount.cli import main

SHORT = (
    *("--steps", "12", "--batch-size", "4", "--sequence-length", "32", "--warmup", "2"),
    *("--held-out", "200", "--learning-rate", "3e-3", "--torch-device", "cpu"),
)


class Pair(NamedTuple):
    """Folders of an original and of its conversion to fewer K/V heads."""

    original: Path
    converted: Path


MakePair = Callable[..., Pair]
Uptrain = Callable[..., Result]


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory: pytest.TempPathFactory) -> MakePair:
    """`make_pair(name, kv_heads, dtype, **config)`: a tiny model and its conversion."""
    made: dict[str, Pair] = {}

    def make(name: str, *, kv_heads: int = 2, dtype: str = "float32", **config: Any) -> Pair:
        key = repr((name, kv_heads, dtype, sorted(config.items())))
        if key not in made:
            import torch

            folder = tmp_path_factory.mktemp("pair")
            model = build_model(name, **config).to(getattr(torch, dtype))
            model.save_pretrained(folder / "original")
            make_tokenizer(bos=False).save_pretrained(folder / "original")
            arguments = [str(folder / "original"), str(folder / "converted")]
            done = CliRunner().invoke(main, ["convert", *arguments, "--kv-heads", str(kv_heads)])
            assert done.exit_code == 0, done.stderr
            made[key] = Pair(folder / "original", folder / "converted")
        return made[key]

    return make


@pytest.fixture(scope="session")
def pair(make_pair: MakePair) -> Pair:
    """A Llama of four K/V heads with tied embeddings, and its conversion to two."""
    return make_pair("llama", num_key_value_heads=4, tie_word_embeddings=True)


@pytest.fixture(scope="session")
def prose(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Some 1,900 tokens."""
    path = tmp_path_factory.mktemp("text") / "prose.txt"
    path.write_text(sample_text()[:5000], encoding="utf-8")
    return path


@pytest.fixture
def uptrain(prose: Path, tmp_path: Path) -> Uptrain:
    """`uptrain(pair, *options)`: the command, with a target in tmp_path, and JSON."""

    def run(pair: Pair, *options: str, target: str = "out", text: Path = prose) -> Result:
        return run_uptrain(pair, text, tmp_path / target, *options)

    return run


def run_uptrain(pair: Pair, text: Path, target: Path, *options: str) -> Result:
    """The command, with JSON."""
    command = ["uptrain", str(pair.converted), "--teacher", str(pair.original)]
    command += ["--text", str(text), "--output-dir", str(target)]
    return CliRunner().invoke(main, [*command, *SHORT, "--format", "json", *options])


def document(result: Result) -> dict[str, Any]:
    """The JSON that a run has printed."""
    assert result.exit_code == 0, result.stderr
    parsed: dict[str, Any] = json.loads(result.stdout)
    return parsed
