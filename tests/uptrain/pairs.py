"""Tiny encoder-decoders with what a conversion makes of them, and pairs to train them on."""

import json
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from click.testing import CliRunner, Result

from encoder_decoders import ENCODER_DECODERS, FEATURES, FRAMES
from headcount.cli import main

WORDS = (
    *("the", "cat", "sat", "on", "a", "mat", "and", "so"),
    *("it", "is", "was", "there", "dog", "to", "be"),
)
# Some 13 tokens a target; a batch of 4 holds unequal ones.
SHORT = (
    *("--steps", "12", "--batch-size", "4", "--sequence-length", "24", "--warmup", "2"),
    *("--held-out", "90", "--learning-rate", "3e-3", "--torch-device", "cpu"),
)


class Taught(NamedTuple):
    """Folders of an encoder-decoder and of its conversion to half its K/V heads by their mean, and
    a file of pairs."""

    original: Path
    converted: Path
    pairs: Path


def make_taught(name: str, folder: Path, tokenizer: Any, *, count: int = 60) -> Taught:
    """`name` is one of `ENCODER_DECODERS`."""
    import torch

    torch.manual_seed(0)
    original, converted = folder / "original", folder / "converted"
    ENCODER_DECODERS[name](len(tokenizer)).save_pretrained(original)
    tokenizer.save_pretrained(original)
    words = ("convert", original, converted, "--kv-heads", 2, "--method", "mean")
    done = CliRunner().invoke(main, [str(word) for word in words])
    assert done.exit_code == 0, done.stderr
    pairs = folder / "pairs.jsonl"
    pairs.write_text("\n".join(_lines(name, folder, count)), encoding="utf-8")
    return Taught(original, converted, pairs)


def _lines(name: str, folder: Path, count: int) -> list[str]:
    drawn = random.Random(0)

    def text() -> str:
        return " ".join(drawn.choice(WORDS) for _ in range(drawn.randint(1, 9)))

    lines = []
    for number in range(count):
        given = {"source": text()}
        if name == "whisper":
            given = {"features": f"{number}.npy"}
            features = np.random.default_rng(number).normal(size=(FEATURES, FRAMES))
            np.save(folder / given["features"], features.astype("float32"))
        lines.append(json.dumps({**given, "target": text()}))
    return lines


def words_of(taught: Taught, target: Path, *options: object) -> list[str]:
    """The command on the pairs, with JSON."""
    command = ("uptrain", taught.converted, "--teacher", taught.original, "--output-dir", target)
    given = options if "--text" in options else ("--pairs", taught.pairs, *options)
    return [str(word) for word in (*command, *SHORT, "--format", "json", *given)]


def run(taught: Taught, target: Path, *options: object) -> Result:
    return CliRunner().invoke(main, words_of(taught, target, *options))
