"""A signal at each step of a conversion: nothing of the model's size stays hidden, no process goes
on, and what is said and the exit status tell what holds."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from conversions import contents
from faulty import FaultyCommand, Ran

pytestmark = pytest.mark.needs_convert
MakeFolder = Callable[..., Path]
SIGNALS = [
    (signal.SIGTERM, 143),
    pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    pytest.param(signal.SIGHUP, 129, marks=pytest.mark.slow),
]
KINDS = ["safetensors", pytest.param("pickle", marks=pytest.mark.slow)]
RUN, SWEEP = "headcount.commands.convert_run", "headcount.evaluate.sweep.sweep"
SHORT = ("--max-tokens", "128", "--no-speed")


@pytest.fixture
def model(grouped: MakeFolder) -> Path:
    """A Llama of 12 heads and 4 K/V heads."""
    return grouped("llama", 12, 4)


@pytest.fixture
def pickled(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as torch.save writes it."""
    folder = tmp_path_factory.mktemp("pickled")
    (folder / "config.json").write_bytes((model / "config.json").read_bytes())
    torch.save(load_file(model / "model.safetensors"), folder / "pytorch_model.bin")
    return folder


@pytest.fixture
def stop(
    command: FaultyCommand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Ran]:
    """stop(number, at, given, *words): `convert`, which sends itself the signal once `at` has done
    its work; again each time that it does. `without`: on a system that lacks that."""

    def run(number: int, at: str, given: str, *words: object, without: str | None = None) -> Ran:
        fault = {"fault": "signal", "at": at, "given": given, "number": int(number)}
        done = command("convert", *words, **fault, without=without)
        assert "Traceback" not in done.stderr, done.stderr
        assert not running(tmp_path)
        return done

    return run


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def running(folder: Path) -> list[bytes]:
    """Command lines of living processes that work in `folder`."""
    if not Path("/proc/self/cmdline").exists():
        return []
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue  # has ended meanwhile
        if b"unpickle_child" in line and os.fsencode(folder) in line:
            found.append(line)
    return found


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize(
    ("at", "given", "without"),
    [
        pytest.param("os:unlink", "config.json", None, id="first-files-of-the-old-model"),
        pytest.param("os:unlink", ".", None, id="every-file-of-it"),
        pytest.param("os:rmdir", "old", "exchange", id="its-folder"),
        pytest.param("os:rmdir", ".out.partial-", None, id="the-work-folder"),
        pytest.param("os:unlink", ".out.lock", None, id="the-lock"),
    ],
)
def test_a_signal_while_the_old_model_is_removed_comes_too_late(
    command: FaultyCommand,
    stop: Callable[..., Ran],
    model: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    at: str,
    given: str,
    without: str | None,
) -> None:
    target = tmp_path / "out"
    words = (model, target, "--kv-heads", 2, "--overwrite")
    assert command("convert", *words).status == 0
    wanted = contents(target)
    assert command("convert", model, target, "--kv-heads", 1, "--overwrite").status == 0
    done = stop(number, at, given, *words, without=without)
    assert done.status == code, done
    assert f"{target}: is complete; the same command shows its report" in done.stderr
    assert contents(target) == wanted
    assert left(tmp_path) == ["out"]
    again = command("convert", model, target, "--kv-heads", 2)
    assert (again.status, "already done" in again.stdout) == (0, True)


@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
@pytest.mark.parametrize(
    ("at", "given"),
    [
        pytest.param("subprocess:Popen.__init__", "", id="torch-begins-to-load"),
        pytest.param("headcount.convert.unpickle:_convert_file", "", id="a-file-is-loaded"),
        pytest.param("headcount.convert.unpickle:_as_old_as", "", id="every-file-is-copied"),
        pytest.param("headcount.convert.plan.planner:read_source", "", id="the-plan-is-begun"),
        pytest.param(f"{RUN}:plan_conversion", "", id="the-plan-is-made"),
        pytest.param("headcount.convert.stream.writer:NewFile.write", "", id="it-is-written"),
        pytest.param("os:rmdir", ".out.partial-", id="the-work-folder-is-removed"),
    ],
)
def test_a_signal_takes_the_copy_of_a_pickled_model_away(
    stop: Callable[..., Ran],
    pickled: Path,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    at: str,
    given: str,
) -> None:
    target = tmp_path / "out"
    done = stop(number, at, given, pickled, target, "--kv-heads", 2, "--allow-pickle")
    assert done.status == code, done
    assert left(tmp_path) == (["out"] if "is complete" in done.stderr else [])
    assert target.exists() == (given != "")


@pytest.mark.parametrize(("number", "code"), SIGNALS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("at", "options"),
    [
        pytest.param("headcount.convert.check:_load", ("--check",), id="check"),
        pytest.param(
            "headcount.evaluate.evaluation:load_model", ("--evaluate", *SHORT), id="evaluate"
        ),
    ],
)
def test_a_signal_after_the_conversion_says_that_it_is_complete(
    stop: Callable[..., Ran],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    kind: str,
    at: str,
    options: tuple[str, ...],
) -> None:
    source = request.getfixturevalue("pickled" if kind == "pickle" else "model")
    text = tmp_path / "prose.txt"
    text.write_text("1 2 3 4 5 6 7 8 9 " * 40)
    if "--evaluate" in options:
        pytest.importorskip("tokenizers")
        options = (*options, "--text", str(text), "--tokenizer", str(tokenizer(tmp_path)))
    target = tmp_path / "models" / "out"
    target.parent.mkdir()
    more = ("--allow-pickle",) if kind == "pickle" else ()
    done = stop(number, at, "", source, target, "--kv-heads", 2, *options, *more)
    assert done.status == code, done
    assert f"{target}: is complete" in done.stderr
    assert left(target.parent) == ["out"]


def tokenizer(folder: Path) -> Path:
    """One of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {str(number): number for number in range(10)}
    made = Tokenizer(models.WordLevel(words, unk_token="0"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=made, unk_token="0").save_pretrained(
        folder / "tokenizer"
    )
    return folder / "tokenizer"


@pytest.mark.parametrize(("number", "code"), SIGNALS[:2])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("at", "given", "is_complete"),
    [
        pytest.param(f"{SWEEP}:apply_plan", "", False, id="a-trial-is-converted"),
        pytest.param(f"{SWEEP}:evaluate", "", False, id="it-is-measured"),
        pytest.param(f"{SWEEP}:remove_folder", "", False, id="it-is-removed"),
        pytest.param(f"{SWEEP}:smallest_within", "", False, id="one-is-chosen"),
        pytest.param("os:rmdir", ".out.sweep-", True, id="the-others-are-removed"),
        pytest.param("headcount.evaluate.sweep.sensitivity:_loss", "", True, id="by-layer"),
    ],
)
def test_a_signal_in_a_sweep_leaves_what_was_chosen_or_nothing(
    stop: Callable[..., Ran],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    number: signal.Signals,
    code: int,
    kind: str,
    at: str,
    given: str,
    is_complete: bool,
) -> None:
    source = request.getfixturevalue("pickled" if kind == "pickle" else "model")
    text = tmp_path / "prose.txt"
    text.write_text("1 2 3 4 5 6 7 8 9 " * 40)
    target = tmp_path / "models" / "out"
    target.parent.mkdir()
    words = ("--sweep", "2,1", "--max-delta-loss", "100", "--by-layer", "--max-tokens", "64")
    said = ("--text", text, "--tokenizer", tokenizer(tmp_path))
    more = ("--allow-pickle",) if kind == "pickle" else ()
    done = stop(number, at, given, source, target, *words, *said, *more)
    assert done.status == code, done
    assert left(target.parent) == (["out"] if is_complete else [])
    assert (f"{target}: is complete" in done.stderr) == is_complete


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM to send")
@pytest.mark.parametrize("stopped_by", ["exit_at_once", "exit_cleanly"])
def test_two_signals_are_one(stopped_by: str, tmp_path: Path) -> None:
    """The second comes while the folder of the first is being removed."""
    import subprocess

    script = f"""
import os, shutil, signal, sys
from pathlib import Path
from headcount.running.passing_folder import passing_folder
from headcount.running.signals import {stopped_by}, on_signals
plain = shutil.rmtree
def slow(path, **options):
    os.kill(os.getpid(), signal.SIGINT)
    plain(path, **options)
shutil.rmtree = slow
with on_signals({stopped_by}), passing_folder(Path(sys.argv[1])) as folder:
    (folder / "weights").write_text("large")
    os.kill(os.getpid(), signal.SIGTERM)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "hidden"], capture_output=True, text=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (143, "", "")
    assert left(tmp_path) == []
