"""`--torch-device auto`: a model whose layers lie apart computes what it computes in one place."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from causal_models import build_model, make_tokenizer
from headcount.cli import main
from headcount.model.errors import HeadcountError
from headcount.running import load
from headcount.running.load import load_model
from headcount.running.placement import (
    Placement,
    check_in_memory,
    inputs_device,
    resolve_placement,
)
from headcount.running.runnable import open_runnable

pytestmark = pytest.mark.needs_convert
CPU = torch.device("cpu")
SPREAD = Placement(inputs=CPU, spread=True)
# What accelerate would find on a machine with little memory, with its real hooks; what is on the
# disk is read when it is needed, and its parameters are on no device.
APART = {
    "model.embed_tokens": "disk",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "disk",
}


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "DEVICE_MAP", APART)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    build_model("llama", tie_word_embeddings=False, num_key_value_heads=4).save_pretrained(
        tmp_path / "model"
    )
    return tmp_path / "model"


@pytest.mark.usefixtures("apart")
def test_logits_are_those_of_the_model_in_one_place(folder: Path) -> None:
    from headcount.evaluate.logits import RowLogits

    runnable = open_runnable(str(folder))
    plain = load_model(runnable, dtype=None, place=Placement(inputs=CPU)).model
    model = load_model(runnable, dtype=None, place=SPREAD).model
    assert any(parameter.is_meta for parameter in model.parameters())
    assert set(model.hf_device_map.values()) == {"cpu", "disk"}
    assert model.device.type == "meta"  # what it says of itself helps nobody
    assert inputs_device(model) == CPU
    read = {"input_ids": torch.arange(24).view(2, 12)}
    with torch.inference_mode():
        for spread, whole in zip(
            (RowLogits(model, read).whole(), RowLogits(model, read).at(3, 7)),
            (RowLogits(plain, read).whole(), RowLogits(plain, read).at(3, 7)),
            strict=True,
        ):
            assert spread.device == CPU
            assert torch.equal(spread, whole)


@pytest.mark.usefixtures("apart")
def test_what_reads_weights_itself_says_that_they_are_away(folder: Path) -> None:
    model = load_model(open_runnable(str(folder)), dtype=None, place=SPREAD).model
    with pytest.raises(HeadcountError, match=r"heads needs all weights in memory.* on cpu, disk"):
        check_in_memory(model, "heads")


def test_auto_is_the_cpu_where_there_is_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert resolve_placement("auto") == resolve_placement("cpu") == Placement(inputs=CPU)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert resolve_placement("auto") == Placement(inputs=torch.device("cuda"), spread=True)


def test_auto_is_refused_in_processes_of_a_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "x")):
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("MASTER_PORT", "1")
    with pytest.raises(HeadcountError, match="each process of a launcher has its own"):
        resolve_placement("auto")


def test_auto_needs_accelerate(monkeypatch: pytest.MonkeyPatch) -> None:
    from headcount.running import placement

    monkeypatch.setattr(placement, "find_spec", lambda name: None)
    with pytest.raises(HeadcountError, match=r"pip install '\.\[uptrain\]'"):
        resolve_placement("auto")


@pytest.mark.usefixtures("apart")
def test_an_evaluation_is_that_of_a_model_in_one_place(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loss, divergence, behaviour and cache."""
    from headcount.evaluate import evaluation_plan

    make_tokenizer(bos=False).save_pretrained(folder)
    other = tmp_path / "other"
    done = CliRunner().invoke(main, ["convert", str(folder), str(other), "--kv-heads", "1"])
    assert done.exit_code == 0, done.stderr
    words = ["evaluate", str(other), "--against", str(folder), "--max-tokens", "200", "--no-speed"]
    words += ["--format", "json", "--torch-device"]
    whole = CliRunner().invoke(main, [*words, "cpu"])
    monkeypatch.setattr(evaluation_plan, "resolve_placement", lambda name: SPREAD)
    spread = CliRunner().invoke(main, [*words, "auto"])
    found, wanted = (json.loads(done.stdout) for done in (spread, whole))
    assert found["settings"].pop("device") == "auto"
    assert wanted["settings"].pop("device") == "cpu"
    assert without_seconds(found) == without_seconds(wanted)


@pytest.mark.usefixtures("apart")
def test_heads_of_a_model_that_does_not_fit_are_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.heads import atlas_plan

    make_tokenizer(bos=False).save_pretrained(folder)
    monkeypatch.setattr(atlas_plan, "resolve_placement", lambda name: SPREAD)
    done = CliRunner().invoke(main, ["heads", str(folder), "--torch-device", "auto"])
    assert (done.exit_code, done.stdout) == (2, "")
    assert "heads needs all weights in memory" in done.stderr


def without_seconds(value: Any) -> Any:
    """A document without times."""
    if isinstance(value, dict):
        return {key: without_seconds(v) for key, v in value.items() if "seconds" not in key}
    return value
