"""Encoder-decoders, fitted to pairs: against what transformers computes of each pair."""

import json
import random
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from calibrating import calibrate
from encoder_decoders import ENCODER_DECODERS, FEATURES, FRAMES
from headcount.cli import main
from headcount.convert.calibrate.layered_model import LayeredModel
from headcount.convert.calibrate.pairs.calibration_pairs import (
    CalibrationPairs,
    calibration_pairs,
    few_lengths,
)
from headcount.convert.calibrate.pairs.pair_calls import pair_memory, record_pairs
from headcount.convert.calibrate.pairs.pair_memory import RaggedRows
from headcount.convert.calibrate.state_rows import StateRows, new_rows
from headcount.convert.merge.ladder import QUALITIES
from headcount.convert.plan.source import read_source
from headcount.convert.stream.reader import SourceReader
from headcount.running.load import load_model
from headcount.running.placement import resolve_placement
from headcount.running.runnable import open_runnable

pytestmark = pytest.mark.needs_convert
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "so",
    "it",
    "is",
    "was",
    "there",
    "dog",
    "to",
    "be",
]
PAIRS, UNSEEN = 40, 12


@pytest.fixture(scope="module", params=sorted(ENCODER_DECODERS))
def model(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    byte_tokenizer: PreTrainedTokenizerBase,
) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp(request.param)
    ENCODER_DECODERS[request.param](len(byte_tokenizer)).save_pretrained(folder)
    byte_tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def pairs(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A file to calibrate with, and one of other pairs."""
    folder, drawn = tmp_path_factory.mktemp("pairs"), random.Random(0)
    is_speech = json.loads((model / "config.json").read_text())["model_type"] == "whisper"

    def text() -> str:
        return " ".join(drawn.choice(WORDS) for _ in range(drawn.randint(1, 9)))

    def line(number: int) -> str:
        given = {"source": text()}
        if is_speech:
            given = {"features": f"{number}.npy"}
            features = np.random.default_rng(number).normal(size=(FEATURES, FRAMES))
            np.save(folder / f"{number}.npy", features.astype("float32"))
        return json.dumps({**given, "target": text()})

    lines = [line(number) for number in range(PAIRS + UNSEEN)]
    files = folder / "seen.jsonl", folder / "unseen.jsonl"
    for file, own in zip(files, (lines[:PAIRS], lines[PAIRS:]), strict=True):
        file.write_text("\n".join(own), encoding="utf-8")
    return files


def _cut(folder: Path, file: Path, tokens: int = 2**20) -> CalibrationPairs:
    runnable = open_runnable(str(folder), encoder_decoders=True)
    return calibration_pairs(read_source(folder), runnable, str(file), tokens, 0)


@contextmanager
def _reader(folder: Path) -> Iterator[SourceReader]:
    with SourceReader(read_source(folder).checkpoint.files) as reader:
        yield reader


def test_layers_give_what_the_whole_model_gives(model: Path, pairs: tuple[Path, Path]) -> None:
    cut, source = _cut(model, pairs[0]), read_source(model)
    whole = load_whole_model(model)
    with _reader(model) as reader:
        memory = pair_memory(LayeredModel(source, reader, stack="encoder"), cut, budget=2**30)
        layered = LayeredModel(source, reader, stack="decoder")
        longest = max(ids.shape[1] for ids in cut.given)
        rows = RaggedRows(new_rows(len(cut.given), torch.empty(longest, 32), held=1))
        calls = record_pairs(layered, cut, memory, [rows])
        wanted = [_states(whole, cut, batch) for batch in cut.batches]
        for batch, one in zip(cut.batches, wanted, strict=True):
            torch.testing.assert_close(memory[batch], one.encoder_last_hidden_state)
            torch.testing.assert_close(rows[batch], one.decoder_hidden_states[0])
        with layered.layer(0) as layer:
            for batch, one in zip(cut.batches, wanted, strict=True):
                made = calls[0](batch).run(layer, rows[batch])
                torch.testing.assert_close(made, one.decoder_hidden_states[1])


def load_whole_model(folder: Path) -> Any:
    return load_model(
        open_runnable(str(folder), encoder_decoders=True),
        dtype=torch.float32,
        place=resolve_placement("cpu"),
        attention="eager",
    ).model


def _states(whole: Any, cut: CalibrationPairs, batch: slice) -> Any:
    return whole(
        **{whole.main_input_name: cut.source(batch.start)},
        decoder_input_ids=cut.given[batch.start],
        output_hidden_states=True,
        use_cache=False,
    )


def test_a_run_that_goes_on_makes_the_same(model: Path, pairs: tuple[Path, Path]) -> None:
    first = calibrate(model, pairs[0], QUALITIES["best"], tokens=800)
    made = {0: first[0]}
    again = calibrate(model, pairs[0], QUALITIES["best"], tokens=800, done=made.get)
    assert [layer.index for layer in first] == [0, 1]
    for one, other in zip(first, again, strict=True):
        assert one.tensors.keys() == other.tensors.keys()
        assert all(torch.equal(one.tensors[name], other.tensors[name]) for name in one.tensors)
    for key in ("attention", "cross_attention", "calibration", "cross_calibration"):
        assert key in first[0].measured
    for key in ("calibration", "cross_calibration"):
        errors = first[0].measured[key]["output_error"]
        assert errors["reconstructed"] <= errors["refit"] <= errors["merged"]


def _run(*words: object, status: int = 0) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exit_code == status, result.output
    return result


def _kl(model: Path, out: Path, unseen: Path, *options: object) -> float:
    _run("convert", model, out, "--kv-heads", 2, "--overwrite", *options)
    said = _run("evaluate", out, "--against", model, "--pairs", unseen, "--format", "json")
    return float(json.loads(said.stdout)["kl_divergence"])


def test_pairs_show_what_weights_do_not(
    model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    """On pairs that it has not seen."""
    seen, unseen = pairs
    mean = _kl(model, tmp_path / "out", unseen, "--method", "mean")
    fast = _kl(model, tmp_path / "out", unseen, "--quality", "fast")
    good = _kl(model, tmp_path / "out", unseen, "--quality", "good", "--calibration", seen)
    assert good < fast < mean


def test_heads_that_are_equal_stay(model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "tied"
    shutil.copytree(model, folder)
    tensors = load_file(folder / "model.safetensors")
    for name, values in tensors.items():
        if "decoder" in name and re.search(r"([kv]_proj|Attention\.[kv])\.", name):
            heads = values.unflatten(0, (4, -1))
            heads[1::2] = heads[::2].clone()
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    assert (
        _kl(folder, tmp_path / "out", pairs[1], "--quality", "good", "--calibration", pairs[0])
        < 1e-9
    )


def test_what_is_no_pair_is_refused(model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    words = ("convert", model, tmp_path / "out", "--kv-heads", 2, "--quality", "good")
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(pairs[0].read_text().splitlines()[:1]), encoding="utf-8")
    if "features" not in few.read_text():
        assert "too few" in _run(*words, "--calibration", few, status=2).stderr
    assert not (tmp_path / "out").exists()


def test_of_a_text_the_model_says_the_targets_itself(
    model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    text, out = tmp_path / "prose.txt", tmp_path / "out"
    lines = ["the cat sat", "a dog and a cat", "so it is", "was it so", "to be there"]
    text.write_text("\n\n".join(lines), encoding="utf-8")
    words = ("convert", model, out, "--kv-heads", 2, "--quality", "good", "--calibration", text)
    if "features" in pairs[0].read_text():
        assert "reads" in _run(*words, status=2).stderr and not out.exists()
        return
    whole = load_whole_model(model)
    tokenizer = AutoTokenizer.from_pretrained(model)
    wanted = set()
    for line in lines:
        source = torch.tensor([tokenizer(line)["input_ids"]])
        said = whole.generate(input_ids=source, max_new_tokens=64, do_sample=False)
        wanted.add(tuple(said[0, : few_lengths(said.shape[1])].tolist()))
    cut = _cut(model, text)
    assert {tuple(ids[0].tolist()) for ids in cut.given} == wanted
    _run(*words)


def test_lengths_are_few_and_hardly_shorter() -> None:
    kept = {few_lengths(length) for length in range(1, 513)}
    assert len(kept) < 60
    assert all(few_lengths(length) >= 0.8 * length for length in range(1, 513))
    assert few_lengths(0) == 1


def test_rows_of_other_lengths_on_disk(tmp_path: Path) -> None:
    rows: StateRows = RaggedRows(new_rows(3, torch.empty(5, 4), held=1, budget=1, folder=tmp_path))
    written = {i: torch.randn(1, n, 4) for i, n in enumerate((3, 5, 1))}
    assert rows.on_disk
    for number, values in written.items():
        rows[slice(number, number + 1)] = values
    for number, values in written.items():
        assert torch.equal(rows[slice(number, number + 1)], values)
    rows.close()


def test_a_sweep_measures_on_pairs(model: Path, pairs: tuple[Path, Path], tmp_path: Path) -> None:
    seen, unseen = pairs
    words = ("--sweep", 2, "--sweep-methods", "mean,good", "--calibration", seen)
    said = _run("convert", model, *words, "--pairs", unseen, "--format", "json")
    trials = json.loads(said.stdout)["trials"]
    found = {(one["num_key_value_heads"], one["method"]): one["kl_divergence"] for one in trials}
    assert found.keys() == {(2, "mean"), (2, "good")}
    assert found[2, "good"] < found[2, "mean"]
    alone = _kl(model, tmp_path / "out", unseen, "--quality", "good", "--calibration", seen)
    assert found[2, "good"] == pytest.approx(alone, rel=1e-6)


def test_targets_are_cut_where_the_decoder_has_no_more_positions(
    model: Path, pairs: tuple[Path, Path], tmp_path: Path
) -> None:
    limit = open_runnable(str(model), encoder_decoders=True).max_position_embeddings
    line = {**json.loads(pairs[0].read_text().splitlines()[0]), "target": "the cat sat " * 100}
    if "features" in line:
        line["features"] = str(pairs[0].parent / line["features"])
    long = tmp_path / "long.jsonl"
    long.write_text("\n".join([json.dumps(line)] * 4), encoding="utf-8")
    cut = _cut(model, long)
    assert all(ids.shape[1] == min(limit or 512, 512) for ids in cut.given)
    _run("evaluate", model, "--pairs", long)
