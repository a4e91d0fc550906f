"""`convert` with rungs that need text: what is refused before anything is written, what the record
and the report say, and runs that are killed."""

import errno
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result
from safetensors.torch import load_file, save_file

from conversions import contents
from faulty import FaultyCommand, Ran
from headcount.cli import main

MakeModel = Callable[..., Path]
pytestmark = pytest.mark.needs_convert
FEW = ("--calibration-tokens", "1k")
BEST = ("--quality", "best", "--reconstruct", "5", "--temperature", *FEW)


@pytest.fixture
def run(tmp_path: Path, make_model: MakeModel) -> Callable[..., Result]:
    """`run(*options)`: converts a Llama, or `source`, to two K/V heads in tmp_path / "out"."""

    def command(*options: object, source: Path | None = None) -> Result:
        folder, target = source or make_model("llama"), tmp_path / "out"
        words = ["convert", folder, target, "--kv-heads", 2, *options]
        return CliRunner().invoke(main, [str(word) for word in words])

    return command


TEXTS: dict[str, tuple[bytes | None, str]] = {
    "missing": (None, "text.txt: no such file; --calibration takes a file of UTF-8 text, or"),
    "empty": (b"", "holds no text"),
    "blank": (b" \n ", "holds no text"),
    "binary": (bytes(range(256)), "not UTF-8 (byte 128)"),
    "short": (b"Hello there", "11 tokens are too few to calibrate with: at least 32"),
}


@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_is_none_is_refused_before_anything_is_written(
    run: Callable[..., Result], tmp_path: Path, name: str, dry: tuple[str, ...]
) -> None:
    content, words = TEXTS[name]
    if content is not None:
        (tmp_path / "text.txt").write_bytes(content)
    done = run("--quality", "good", "--calibration", tmp_path / "text.txt", *dry)
    assert (done.exit_code, words in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("place", ["/dev/zero", "folder"])
def test_what_is_no_file_is_not_read(
    run: Callable[..., Result], tmp_path: Path, place: str
) -> None:
    (tmp_path / "folder").mkdir()
    done = run("--quality", "good", "--calibration", tmp_path / place, "--dry-run")
    assert (done.exit_code, "is not a regular file" in done.stderr) == (2, True), done.stderr


def test_a_plan_needs_the_tokenizer(
    run: Callable[..., Result], make_model: MakeModel, prose: Path
) -> None:
    source = make_model("llama", tokens=False)
    done = run("--quality", "good", "--calibration", prose, "--dry-run", source=source)
    assert (done.exit_code, "no tokenizer there" in done.stderr) == (2, True), done.stderr


def test_a_number_of_tokens_without_text_is_refused(run: Callable[..., Result]) -> None:
    done = run("--quality", "fast", *FEW)
    assert (done.exit_code, "add --calibration FILE" in done.stderr) == (2, True), done.stderr


def test_a_plan_says_how_many_tokens_there_are(run: Callable[..., Result], prose: Path) -> None:
    """A token is a byte here; 78 rows of 64 make 4 batches of 19."""
    size = prose.stat().st_size
    done = run("--quality", "good", "--calibration", prose, "--dry-run")
    assert f"the calibration text has {size:,} tokens, not 32,768" in done.stdout
    assert f"on {4 * 19 * 64:,} tokens of {prose}" in done.stdout
    assert "first, their q, k, v and o and MLPs' last; at most" in done.stdout
    few = run("--quality", "good", "--calibration", prose, *FEW, "--dry-run", "--format", "json")
    assert json.loads(few.stdout)["ladder"]["calibration"]["tokens"] == 1024
    assert json.loads(few.stdout)["notes"] == []


def test_scores_that_can_have_no_temperature_are_named(
    run: Callable[..., Result], make_model: MakeModel, prose: Path
) -> None:
    options = ("--method", "merge", "--temperature", "--calibration", prose, "--dry-run")
    source = make_model("gemma3_text")
    assert "scores get no temperature: self_attn.k_norm" in run(*options, source=source).stdout
    assert "temperature:" not in run(*options).stdout


DAMAGED = {
    "model.embed_tokens.weight": "its embeddings give",
    "model.layers.0.mlp.down_proj.weight": "layer 0 gives",
    "model.layers.1.input_layernorm.weight": "layer 1 gives",
}


@pytest.mark.parametrize("rungs", [("--method", "merge"), ("--quality", "good")])
@pytest.mark.parametrize("name", DAMAGED)
def test_nan_on_the_way_ends_the_run(
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    name: str,
    rungs: tuple[str, ...],
) -> None:
    source = tmp_path / "damaged"
    source.mkdir()
    for path in make_model("llama").iterdir():
        (source / path.name).write_bytes(path.read_bytes())
    tensors = load_file(source / "model.safetensors")
    tensors[name][:] = torch.nan
    save_file(tensors, source / "model.safetensors", {"format": "pt"})
    done = run(*rungs, "--calibration", prose, *FEW, source=source)
    assert done.exit_code == 2, done.stderr
    assert f"{DAMAGED[name]} NaN or infinity on the calibration text" in done.stderr
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".*"))


def test_the_record_has_what_every_step_found_and_left(
    run: Callable[..., Result], prose: Path, tmp_path: Path
) -> None:
    done = run(*BEST, "--calibration", prose)
    assert done.exit_code == 0, done.stderr
    record = json.loads((tmp_path / "out" / "conversion.json").read_text())
    for layer in record["layers"]:
        found = layer["rewritten"]["calibration"]
        assert layer["rewritten"]["attention"].keys() >= {"key_error", "key_mean_error"}
        assert found["output_error"].keys() == {"merged", "refit", "reconstructed"}
        assert found["mlp_error"].keys() == {"before", "after"}
        assert found["temperature"]["divergence"].keys() == {"before", "after"}
    again = run(*BEST, "--calibration", prose, "--format", "json")
    assert json.loads(again.stdout) == record
    table = run(*BEST, "--calibration", prose).stdout
    head, row = _fitted(table)
    titles = ("Scores", "tempered", "Output before", "o refitted", "reconstructed")
    assert [head.index(title) for title in (*titles, "Layer before", "MLP refitted")]
    error = record["layers"][0]["rewritten"]["calibration"]["output_error"]["refit"]
    assert f"{100 * error**0.5:.1f} %" in row


def _fitted(table: str) -> tuple[str, str]:
    lines = table[table.index("Fitted to text") :].splitlines()
    return lines[1], lines[3]


def test_experts_whose_last_projection_stays_are_named(
    run: Callable[..., Result], make_model: MakeModel, prose: Path
) -> None:
    options = ("--quality", "good", "--calibration", prose, *FEW)
    done = run(*options, source=make_model("mixtral"))
    assert "layers 0-2: no last projection of a dense MLP was found" in done.stdout
    assert "MLP refitted" not in done.stdout


@pytest.mark.parametrize("parts", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_a_kill_between_layers_or_a_full_disk_loses_nothing(
    command: FaultyCommand, make_model: MakeModel, prose: Path, tmp_path: Path, parts: int
) -> None:
    """Calls are counted over the whole run; layers are written in its first half."""

    def convert(name: str, **fault: Any) -> Any:
        words = ("convert", make_model("llama"), tmp_path / name, "--kv-heads", 2, *BEST)
        return command(*words, "--calibration", prose, **fault)

    calls = convert("whole").calls
    whole = contents(tmp_path / "whole")
    resumed, failed = [], 0
    for at in range(calls // parts, calls, calls // parts):
        killed = convert("out", fault="kill", at=at)
        assert killed.status == 137, killed
        again = convert("out")
        assert again.status == 0, again
        assert contents(tmp_path / "out") == whole
        assert not list(tmp_path.glob(".*"))
        resumed.append("resuming" in again.stderr)
        for path in (tmp_path / "out").iterdir():
            path.unlink()
        (tmp_path / "out").rmdir()
        full = convert(f"full-{at}", fault="always", at=at, number=errno.ENOSPC)
        kept = full.status == 0  # all that was left was to remove the work folder
        assert kept or full.status == 3, full
        assert (tmp_path / f"full-{at}").exists() == kept
        assert not list(tmp_path.glob(".*"))
        failed += not kept
    assert sum(resumed) > len(resumed) / 2 and failed > len(resumed) / 2


SIGNALS = [(signal.SIGTERM, 143), (signal.SIGINT, 130)]


KEPT = "headcount.convert.stream.work_folder:WorkFolder.keep"
CHECKED = "headcount.convert.stream.work_folder:_is_whole"


def _stopped(command: FaultyCommand, number: signal.Signals, *words: object, at: str = KEPT) -> Ran:
    """A command that stops itself when the second of three layers is on the disk, or is checked."""
    return command(*words, fault="signal", at=at, given="00001", number=int(number))


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_layers_that_a_signal_finds_finished_are_kept(
    command: FaultyCommand,
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    options = (*BEST, "--calibration", prose)
    assert run(*options).exit_code == 0
    whole = contents(tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    words = ("convert", make_model("llama"), tmp_path / "out", "--kv-heads", 2, *options)
    stopped = _stopped(command, number, *words)
    assert stopped.status == code and "Traceback" not in stopped.stderr, stopped.stderr
    (kept,) = tmp_path.iterdir()
    assert f"stopped; 2 rewritten layers are kept in {kept}" in stopped.stderr
    again = run(*options)
    told = f"resuming {tmp_path / 'out'}: 2 rewritten layers of a stopped run\n"
    assert again.exit_code == 0 and told in again.stderr
    assert contents(tmp_path / "out") == whole
    assert not list(tmp_path.glob(".*"))


def test_a_run_that_is_stopped_twice_keeps_its_folder_and_counts_from_there(
    command: FaultyCommand,
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = (*BEST, "--calibration", prose)
    words = ("convert", make_model("llama"), tmp_path / "out", "--kv-heads", 2, *options)
    assert _stopped(command, signal.SIGINT, *words).status == 130
    (first,) = tmp_path.iterdir()
    stopped = _stopped(command, signal.SIGINT, *words, at=CHECKED)
    assert [*tmp_path.iterdir()] == [first]
    assert f"stopped; 2 rewritten layers are kept in {first}: the same command" in stopped.stderr
    told = bars(monkeypatch)
    assert run(*options).exit_code == 0
    assert told == [[2, 0, 0, 1]]


def bars(monkeypatch: pytest.MonkeyPatch) -> list[list[float]]:
    """Of each bar of a calibration: where it began, and what it was told since."""
    told: list[list[float]] = []

    class Bar:
        def __init__(self, *words: object, initial: int, **others: object) -> None:
            told.append([initial])

        def update(self, count: float) -> None:
            told[-1].append(int(count))

        def close(self) -> None:
            """It counts no more."""

    monkeypatch.setattr("headcount.convert.calibrate.calibration.progress_bar", Bar)
    return told


@pytest.mark.parametrize("others", [("--seed", 7), ("--method", "align")])
def test_another_conversion_says_what_it_takes_away(
    command: FaultyCommand,
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    others: tuple[object, ...],
) -> None:
    options = (*BEST, "--calibration", prose)
    out = tmp_path / "out"
    stopped = _stopped(
        command, signal.SIGINT, "convert", make_model("llama"), out, "--kv-heads", 2, *options
    )
    (kept,) = tmp_path.iterdir()
    assert f"any other conversion into {out} removes it" in stopped.stderr
    again = run(*options, *others)
    assert again.exit_code == 0, again.stderr
    told = "(another source, other options or another version); 2 rewritten layers are lost\n"
    assert f"removed {kept}, which a stopped run of another conversion into" in again.stderr
    assert told in again.stderr


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_while_kept_layers_are_checked_keeps_them(
    command: FaultyCommand,
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    """Their digests take a while to compute: the run has not made them its own yet."""
    options = (*BEST, "--calibration", prose)
    words = ("convert", make_model("llama"), tmp_path / "out", "--kv-heads", 2, *options)
    assert _stopped(command, number, *words).status == code
    again = _stopped(command, number, *words, at=CHECKED)
    assert again.status == code and "Traceback" not in again.stderr, again.stderr
    (kept,) = tmp_path.iterdir()
    assert f"stopped; 2 rewritten layers are kept in {kept}" in again.stderr
    last = run(*options)
    assert last.exit_code == 0 and ": 2 rewritten layers of" in last.stderr


def test_a_target_that_may_not_be_replaced_costs_no_kept_layers(
    command: FaultyCommand,
    run: Callable[..., Result],
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
) -> None:
    assert run("--method", "mean").exit_code == 0
    options = (*BEST, "--calibration", prose)
    words = ("convert", make_model("llama"), tmp_path / "out", "--kv-heads", 2, *options)
    assert _stopped(command, signal.SIGINT, *words, "--overwrite").status == 130
    refused = run(*options)
    assert refused.exit_code == 2 and "--overwrite" in refused.stderr
    again = run(*options, "--overwrite")
    assert again.exit_code == 0 and ": 2 rewritten layers of" in again.stderr
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_sweep_that_a_signal_stops_keeps_nothing(
    command: FaultyCommand,
    make_model: MakeModel,
    prose: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
) -> None:
    words = ("convert", make_model("llama"), "--sweep", 2, "--sweep-methods", "good", *FEW)
    stopped = _stopped(command, number, *words, "--calibration", prose)
    told = "Interrupted.\n" if number == signal.SIGINT else ""
    assert (stopped.status, stopped.stdout, stopped.stderr) == (code, "", told)
    assert not list(tmp_path.iterdir())
