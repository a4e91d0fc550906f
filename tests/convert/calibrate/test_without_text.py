"""Heads that are merged without a text, in a model whose layers read massive activations."""

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

from headcount.cli import main
from headcount.convert.calibrate import calibration as calibrated_module
from headcount.convert.calibrate import layered_model
from headcount.convert.calibrate.random_tokens import RANDOM_TOKENS, random_tokens
from headcount.convert.plan.errors import CannotConvertError
from headcount.model.errors import HeadcountError
from headcount.running.runnable import open_runnable

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
VOCABULARY, HIDDEN, HEADS, D = 256, 64, 4, 16


@pytest.fixture
def massive(tmp_path: Path) -> Path:
    """One feature is far larger than all others, whatever the token, and what each two heads make
    of it agrees; of the others, which are nearly nothing, they make something else."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        head_dim=D,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=HEADS,
        num_key_value_heads=HEADS,
        max_position_embeddings=128,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            parameter.data.normal_(std=0.3)
    model.model.embed_tokens.weight.data[:, 0] = 30
    for layer in model.model.layers:
        attention = layer.self_attn
        for part in (attention.k_proj, attention.v_proj):
            heads = part.weight.data.view(HEADS, D, HIDDEN)
            heads[1::2, :, 0] = heads[::2, :, 0]
    model.save_pretrained(tmp_path / "massive")
    return tmp_path / "massive"


@torch.no_grad()
def lost(source: Path, target: Path) -> float:
    """KL(source || target) a token, on tokens that no conversion has seen."""
    ids = torch.randint(VOCABULARY, (8, 64), generator=torch.Generator().manual_seed(7))
    before, after = (
        AutoModelForCausalLM.from_pretrained(folder)(ids).logits.log_softmax(-1)
        for folder in (source, target)
    )
    return float((before.exp() * (before - after)).sum(-1).mean())


def converted(source: Path, target: Path, *options: str) -> dict[str, Any]:
    size = () if "--latent" in options else ("--kv-heads", "2")
    words = ["convert", str(source), str(target), *size, *options]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    record = json.loads((target / "conversion.json").read_text())
    return {"record": record, "said": done.stdout}


def not_run(runnable: Any, seed: int, white: float) -> Any:
    raise CannotConvertError(f"{runnable.folder}: a class that cannot be run")


def test_massive_activations_are_seen(
    massive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merged as if inputs were white the heads lose more than their mean does: the case is one."""
    converted(massive, tmp_path / "mean")
    fast = converted(massive, tmp_path / "fast", "--quality", "fast")
    monkeypatch.setattr(calibrated_module, "random_tokens", not_run)
    white = converted(massive, tmp_path / "white", "--quality", "fast")
    of = {name: lost(massive, tmp_path / name) for name in ("mean", "fast", "white")}
    assert of["fast"] < of["mean"] < of["white"], of

    assert f"measured on {RANDOM_TOKENS:,} random tokens" in " ".join(fast["said"].split())
    for layer in fast["record"]["layers"]:
        known = {"random_tokens": RANDOM_TOKENS, "assumed": None, "reason": None}
        assert layer["rewritten"]["inputs"] == known
    said = " ".join(white["said"].split())
    assert "layers 0-1 read was taken for white" in said and "a class that cannot be run" in said
    for layer in white["record"]["layers"]:
        reason = "massive: a class that cannot be run"
        known = {"random_tokens": 0, "assumed": "white", "reason": reason}
        assert layer["rewritten"]["inputs"] == known


@pytest.mark.parametrize("home", ["latent", "mla"])
def test_latents_hold_massive_activations(
    massive: Path, tmp_path: Path, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of white inputs the massive one is one among many, which a latent may lose."""
    options = ("--latent", "1/4", "--home", home)
    fast = converted(massive, tmp_path / "fast", *options)
    monkeypatch.setattr(calibrated_module, "random_tokens", not_run)
    white = converted(massive, tmp_path / "white", *options)
    of = {name: lost(massive, tmp_path / name) for name in ("fast", "white")}
    assert of["fast"] < of["white"] / 2, of
    for found, tokens in ((fast, RANDOM_TOKENS), (white, 0)):
        known = [layer["rewritten"]["inputs"] for layer in found["record"]["layers"]]
        assert [one["random_tokens"] for one in known] == [tokens] * 2
    assert f"measured on {RANDOM_TOKENS:,} random tokens" in " ".join(fast["said"].split())
    assert "layers 0-1 read was taken for white" in " ".join(white["said"].split())


@pytest.mark.parametrize("options", [("--latent", "1/4"), ("--kv-heads", "2", "--quality", "fast")])
def test_a_disk_that_fails_is_no_class_that_cannot_be_run(
    massive: Path, tmp_path: Path, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails once, for the second reader of the config."""

    def failing(folder: str, **options: Any) -> Any:
        try:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        except OSError as error:
            raise HeadcountError(f"{folder}/config.json: cannot be read: {error}") from error

    monkeypatch.setattr(layered_model, "open_runnable", failing)
    words = ["convert", str(massive), str(tmp_path / "out"), *options]
    done = CliRunner().invoke(main, words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "config.json: cannot be read" in done.stderr
    assert not (tmp_path / "out").exists()


def test_the_seed_decides(massive: Path, tmp_path: Path) -> None:
    for name, seed in (("one", "0"), ("again", "0"), ("other", "1")):
        converted(massive, tmp_path / name, "--quality", "fast", "--seed", seed)
    read = {n: (tmp_path / n / "model.safetensors").read_bytes() for n in ("one", "again", "other")}
    assert read["one"] == read["again"] != read["other"]


@pytest.mark.parametrize("longest", [32, 4096])
def test_random_tokens_are_of_the_vocabulary_in_rows_that_the_model_reads(
    make_model: MakeModel, longest: int
) -> None:
    runnable = open_runnable(str(make_model("llama", max_position_embeddings=longest)))
    text = random_tokens(runnable, 0, 0.5)
    assert text.ids.shape == (RANDOM_TOKENS // min(128, longest), min(128, longest))
    assert int(text.ids.min()) >= 0 and int(text.ids.max()) < runnable.vocab_size
    assert text.batches[-1].stop == len(text.ids) and not text.held and text.white == 0.5
    half = runnable.vocab_size // 2
    evenly, falling = ((text.ids[start::2] < half).double().mean() for start in (0, 1))
    assert 0.4 < float(evenly) < 0.6 and float(falling) > 0.8
