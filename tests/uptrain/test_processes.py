"""Several processes, as `accelerate launch` starts them, and real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from conversions import contents

from .conftest import SHORT, Pair, Uptrain, document

pytestmark = pytest.mark.needs_convert
ALONE = (sys.executable, "-m", "headcount")
LAUNCH = (
    *(sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2"),
    *("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no"),
    *("--main_process_port", "0", "-m", "headcount"),
)


def arguments(pair: Pair, text: Path, target: Path, *options: str) -> list[str]:
    models = ["uptrain", str(pair.converted), "--teacher", str(pair.original)]
    return [*models, "--text", str(text), "--output-dir", str(target), *SHORT, *options]


def environment() -> dict[str, str]:
    """The same number of threads everywhere: sums depend on it."""
    return {**os.environ, "OMP_NUM_THREADS": "1"}


def launched(command: tuple[str, ...], *more: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*command, *more], capture_output=True, text=True, timeout=300, env=environment()
    )


def same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Equal but for the order in which numbers were added."""
    for mine, theirs in zip(one["history"], other["history"], strict=True):
        assert mine["loss"] == pytest.approx(theirs["loss"], rel=1e-5)
    for part in ("before", "after"):
        for key in ("loss", "kl_divergence", "teacher_loss"):
            assert one[part][key] == pytest.approx(other[part][key], rel=1e-5), (part, key)


def test_two_processes_learn_what_one_learns(
    uptrain: Uptrain, pair: Pair, prose: Path, tmp_path: Path
) -> None:
    done = launched(LAUNCH, *arguments(pair, prose, tmp_path / "two", "--format", "json"))
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)  # one document: only the main process prints
    assert two["processes"] == 2
    same(document(uptrain(pair)), two)
    assert {path.name for path in tmp_path.iterdir()} == {"out", "two"}


@pytest.mark.slow
def test_two_processes_say_once_what_is_wrong(pair: Pair, prose: Path, tmp_path: Path) -> None:
    done = launched(LAUNCH, *arguments(pair, prose, tmp_path / "out", "--batch-size", "5"))
    assert done.returncode != 0
    assert done.stderr.count("make it a multiple of 2") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGKILL")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_signal_keeps_the_checkpoints(
    pair: Pair, prose: Path, tmp_path: Path, number: signal.Signals
) -> None:
    options = ("--steps", "80", "--checkpoint-every", "5")
    command = [*ALONE, *arguments(pair, prose, tmp_path / "out", *options)]
    work = tmp_path / ".out.uptraining"
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment()
    ) as running:
        deadline = time.monotonic() + 200
        while not list(work.glob("checkpoint-??????")) and time.monotonic() < deadline:
            time.sleep(0.05)
        running.send_signal(number)
        _, said = running.communicate(timeout=60)
    killed = number == signal.SIGKILL
    assert running.returncode == (-number if killed else 128 + number)
    assert "Traceback" not in said
    assert killed or "the same command goes on" in said
    assert (tmp_path / ".out.lock").exists() == killed
    assert list(work.glob("checkpoint-??????"))
    assert not (tmp_path / "out").exists()
    again = launched(ALONE, *arguments(pair, prose, tmp_path / "out", *options))
    assert again.returncode == 0, again.stderr
    assert "resuming" in again.stderr
    whole = launched(ALONE, *arguments(pair, prose, tmp_path / "whole", *options))
    assert whole.returncode == 0, whole.stderr
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"out", "whole"}


@pytest.mark.slow
def test_a_run_of_one_process_is_resumed_by_two(
    uptrain: Uptrain, pair: Pair, prose: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.uptrain.learner import Learner

    step = Learner.step

    def dying(self: Any, number: int) -> float:
        if number == 9:
            raise KeyboardInterrupt
        return step(self, number)

    whole = document(uptrain(pair, target="whole"))
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", dying)
        assert uptrain(pair, "--checkpoint-every", "4").exit_code == 130
    target = tmp_path / "out"
    done = launched(LAUNCH, *arguments(pair, prose, target, "--format", "json"))
    assert done.returncode == 0, done.stderr
    assert "from step 8" in done.stderr
    same(whole, json.loads(done.stdout))


@pytest.mark.slow
def test_computing_in_bfloat16_trains_weights_in_float32(
    pair: Pair, prose: Path, tmp_path: Path
) -> None:
    from safetensors.torch import load_file

    options = ("--dtype", "bfloat16", "--steps", "40", "--format", "json")
    done = launched(ALONE, *arguments(pair, prose, tmp_path / "out", *options))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["after"]["kl_divergence"] < 0.95 * found["before"]["kl_divergence"]
    old, new = (
        load_file(folder / "model.safetensors") for folder in (pair.converted, tmp_path / "out")
    )
    assert {tensor.dtype for tensor in new.values()} == {tensor.dtype for tensor in old.values()}
    moved = [tensor for name, tensor in new.items() if not tensor.equal(old[name])]
    assert any(not tensor.equal(tensor.bfloat16().float()) for tensor in moved)
