"""Encoder-decoders: the loss of targets is the one that transformers' own classes give."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from transformers import (
    BartForConditionalGeneration,
    T5ForConditionalGeneration,
    WhisperForConditionalGeneration,
)

from encoder_decoders import ENCODER_DECODERS, FEATURES, FRAMES
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
PAIRS = [("the cat sat", "on the mat"), ("a dog and a cat", "sat there"), ("so it is", "was it so")]


@pytest.fixture(params=sorted(ENCODER_DECODERS))
def model(request: pytest.FixtureRequest, tmp_path: Path, tokenizer: Any) -> Path:
    torch.manual_seed(0)
    built = ENCODER_DECODERS[request.param](len(tokenizer))
    built.save_pretrained(tmp_path / "source")
    tokenizer.save_pretrained(tmp_path / "source")
    return tmp_path / "source"


@pytest.fixture
def pairs(model: Path, tmp_path: Path) -> Path:
    is_speech = json.loads((model / "config.json").read_text())["model_type"] == "whisper"
    lines = []
    for number, (source, target) in enumerate(PAIRS):
        given: dict[str, str] = {"source": source}
        if is_speech:
            given = {"features": f"{number}.npy"}
            features = np.random.default_rng(number).normal(size=(FEATURES, FRAMES))
            np.save(tmp_path / f"{number}.npy", features.astype("float32"))
        lines.append(json.dumps({**given, "target": target}))
    path = tmp_path / "pairs.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def run(*words: object, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result


def evaluated(*words: object) -> Any:
    return json.loads(run("evaluate", *words, "--format", "json").stdout)


def loss_by_labels(folder: Path, pairs: Path, tokenizer: Any) -> tuple[float, int]:
    """As training sees it: transformers shifts the labels itself."""
    classes = (T5ForConditionalGeneration, BartForConditionalGeneration)
    name = json.loads((folder / "config.json").read_text())["model_type"]
    loaded: Any = {"t5": classes[0], "bart": classes[1], "whisper": WhisperForConditionalGeneration}
    network = loaded[name].from_pretrained(folder).eval()
    total, count = 0.0, 0
    for line in pairs.read_text().splitlines():
        pair = json.loads(line)
        labels = torch.tensor([tokenizer(pair["target"])["input_ids"]])
        if "features" in pair:
            given = {
                "input_features": torch.from_numpy(np.load(pairs.parent / pair["features"]))[None]
            }
        else:
            given = {"input_ids": torch.tensor([tokenizer(pair["source"])["input_ids"]])}
        with torch.no_grad():
            total += network(**given, labels=labels).loss.item() * labels.shape[1]
        count += labels.shape[1]
    return total / count, count


def test_losses_are_those_of_labels(model: Path, pairs: Path, tokenizer: Any) -> None:
    found = evaluated(model, "--pairs", pairs)
    loss, tokens = loss_by_labels(model, pairs, tokenizer)
    assert found["model"]["tokens"] == tokens
    assert found["model"]["loss"] == pytest.approx(loss, rel=1e-5)
    assert found["cache_bytes"]["measured"] == found["cache_bytes"]["predicted"] > 0
    assert found["settings"]["targets"] == "as given"
    assert found["settings"]["documents"] == len(PAIRS)


def test_a_conversion_is_compared(model: Path, pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run("convert", model, out, "--kv-heads", 2)
    found = evaluated(out, "--against", model, "--pairs", pairs)
    assert found["kl_divergence"] > 1e-4
    assert found["cache_bytes"]["measured"] < found["cache_bytes"]["against"]["measured"]
    same = evaluated(model, "--against", model, "--pairs", pairs)
    assert same["kl_divergence"] == pytest.approx(0, abs=1e-6)
    assert same["top1_agreement"] == 1
    shown = run("evaluate", out, "--against", model, "--pairs", pairs).stdout
    assert f"of {len(PAIRS)} targets of at most" in " ".join(shown.split())


def test_without_pairs_the_original_says_the_targets(model: Path, tmp_path: Path) -> None:
    text = tmp_path / "lines.txt"
    text.write_text("the cat sat\nso it is\n", encoding="utf-8")
    if json.loads((model / "config.json").read_text())["model_type"] == "whisper":
        refused = run("evaluate", model, "--text", text, status=2)
        assert "features" in refused.stderr
        return
    found = evaluated(model, "--against", model, "--text", text, "--max-tokens", 20)
    assert found["model"]["tokens"] == 20
    assert str(model) in found["settings"]["targets"]
    assert found["top1_agreement"] == 1


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("p.jsonl", '{"source": "a"}', "line 1"),
        ("p.jsonl", '{"source": "a", "target": "b"}\nno json', "line 2"),
        ("p.jsonl", '{"source": "a", "features": "x.npy", "target": "b"}', "line 1"),
        ("p.jsonl", "\n\n", "holds no pair"),
        ("p.tsv", "a\tb\nc", "line 2"),
        ("p.jsonl", '{"features": "gone.npy", "target": "b"}', "reads"),
    ],
)
def test_what_is_no_pair_is_refused(
    save_model: SaveModel, tmp_path: Path, tokenizer: Any, name: str, content: str, words: str
) -> None:
    ENCODER_DECODERS["t5"](len(tokenizer)).save_pretrained(tmp_path / "t5")
    tokenizer.save_pretrained(tmp_path / "t5")
    (tmp_path / name).write_text(content, encoding="utf-8")
    assert words in run("evaluate", tmp_path / "t5", "--pairs", tmp_path / name, status=2).stderr
    (tmp_path / name).write_bytes(b"\xff")
    assert "UTF-8" in run("evaluate", tmp_path / "t5", "--pairs", tmp_path / name, status=2).stderr


def test_pairs_are_for_encoder_decoders(save_model: SaveModel, tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_text("a\tb\n", encoding="utf-8")
    refused = run("evaluate", save_model("llama"), "--pairs", tmp_path / "p.tsv", status=2)
    assert "--text" in refused.stderr
