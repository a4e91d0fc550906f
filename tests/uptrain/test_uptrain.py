"""`uptrain` as a user meets it: what it teaches, what it writes, and what it goes on from."""

import hashlib
import json
import os
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import xxhash
from safetensors.torch import load_file

from conversions import contents
from headcount.audit import audit_model

from .conftest import MakePair, Pair, Uptrain, document, run_uptrain

pytestmark = pytest.mark.needs_convert


class KilledError(BaseException):
    """Ends a run as a signal does that nothing catches."""


@pytest.fixture
def untouched(pair: Pair) -> Iterator[None]:
    """Asserts that both models stay as they are."""

    def digests() -> dict[Path, tuple[str, int]]:
        files = [file for folder in pair for file in folder.iterdir()]
        return {
            file: (hashlib.sha256(file.read_bytes()).hexdigest(), file.stat().st_mtime_ns)
            for file in files
        }

    before = digests()
    yield
    assert digests() == before


def left(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.mark.usefixtures("untouched")
def test_what_is_left_of_the_gap_shrinks(uptrain: Uptrain, pair: Pair, tmp_path: Path) -> None:
    found = document(uptrain(pair, "--steps", "60"))
    assert found["schema_version"] == 1
    assert found["after"]["kl_divergence"] < 0.9 * found["before"]["kl_divergence"]
    assert found["gap_closed"]["kl_divergence"] == pytest.approx(
        1 - found["after"]["kl_divergence"] / found["before"]["kl_divergence"]
    )
    assert found["before"]["teacher_loss"] == found["after"]["teacher_loss"]
    assert found["tokens"] == 60 * 4 * 32
    losses = [entry["loss"] for entry in found["history"]]
    assert [entry["step"] for entry in found["history"]] == list(range(6, 61, 6))
    assert [entry["phase"] for entry in found["history"]] == [1, 1] + 8 * [2]
    assert losses[-1] < losses[0]
    assert left(tmp_path) == {"out"}


@pytest.mark.usefixtures("untouched")
def test_scores_are_those_of_the_models_on_the_text_that_was_held_out(
    uptrain: Uptrain, pair: Pair, prose: Path, tmp_path: Path
) -> None:
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    found = document(uptrain(pair))
    ids = AutoTokenizer.from_pretrained(pair.original)(prose.read_text())["input_ids"]
    share = min(200 / len(ids), 0.1)
    held = torch.tensor(ids[len(ids) - round(len(ids) * share) :])
    rows = torch.stack([held[i : i + 33] for i in range(0, len(held) - 32, 32)])
    assert found["held_out"] == {"rows": len(rows), "tokens": 32 * len(rows)}
    folders = {"teacher": pair.original, "before": pair.converted, "after": tmp_path / "out"}
    probabilities = {}
    for name, folder in folders.items():
        model = AutoModelForCausalLM.from_pretrained(folder)
        with torch.no_grad():
            logits = model(input_ids=rows[:, :-1]).logits.double()
        probabilities[name] = logits.log_softmax(-1)
        loss = -probabilities[name].gather(-1, rows[:, 1:, None]).mean().item()
        said = found["teacher_scores" if name == "teacher" else name]["loss"]
        assert said == pytest.approx(loss, rel=1e-5), name
    teacher, after = probabilities["teacher"], probabilities["after"]
    kl = (teacher.exp() * (teacher - after)).sum(-1).mean().item()
    assert found["after"]["kl_divergence"] == pytest.approx(kl, rel=1e-4)
    agree = (teacher.argmax(-1) == after.argmax(-1)).double().mean().item()
    assert found["after"]["top1_agreement"] == pytest.approx(agree)


def test_the_first_phase_moves_attention_and_norms_alone(
    uptrain: Uptrain, pair: Pair, tmp_path: Path
) -> None:
    document(uptrain(pair, "--phase-one", "1", target="attention"))
    document(uptrain(pair, "--phase-one", "0", target="all"))
    old = load_file(pair.converted / "model.safetensors")
    for target, moves_all in (("attention", False), ("all", True)):
        new = load_file(tmp_path / target / "model.safetensors")
        assert new.keys() == old.keys()
        moved = {name for name in new if not new[name].equal(old[name])}
        first = {name for name in new if "self_attn" in name or "norm" in name}
        assert moved == (set(new) if moves_all else first)
        assert {name for name in new if "embed" in name}


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("llama", "bfloat16"), *((name, "float32") for name in ("gpt2", "gemma2", "mixtral"))],
)
def test_the_result_is_a_whole_model_of_the_same_class_and_type(
    make_pair: MakePair, uptrain: Uptrain, tmp_path: Path, name: str, dtype: str
) -> None:
    """GPT-2 keeps its modelling file, and is loaded without it, as headcount.convert is there."""
    from transformers import AutoModelForCausalLM

    pair = make_pair(name, dtype=dtype, **({} if name == "gpt2" else {"num_key_value_heads": 4}))
    found = document(uptrain(pair))
    out = tmp_path / "out"
    assert left(out) == left(pair.converted)
    for file in left(out) - {"model.safetensors", "conversion.json", "README.md"}:
        assert (out / file).read_bytes() == (pair.converted / file).read_bytes(), file
    old, new = (load_file(folder / "model.safetensors") for folder in (pair.converted, out))
    assert {n: (t.shape, t.dtype) for n, t in new.items()} == {
        n: (t.shape, t.dtype) for n, t in old.items()
    }
    model, info = AutoModelForCausalLM.from_pretrained(out, output_loading_info=True)
    assert not any(info.values())
    assert type(model).__name__ in json.loads((out / "config.json").read_text())["architectures"]
    assert not [f for f in audit_model(str(out)).findings if f.severity != "note"]
    assert found["after"]["kl_divergence"] < found["before"]["kl_divergence"]
    modes = {(out / file).stat().st_mode & 0o777 for file in left(out)}
    assert modes == {(out / "conversion.json").stat().st_mode & 0o777}


def test_the_record_tells_conversion_and_uptraining(
    uptrain: Uptrain, pair: Pair, tmp_path: Path
) -> None:
    found = document(uptrain(pair, "--hidden-loss", "0.5", "--cross-entropy", "0.1"))
    old, new = (
        json.loads((folder / "conversion.json").read_text())
        for folder in (pair.converted, tmp_path / "out")
    )
    assert {key: new[key] for key in old if key not in ("job", "manifest")} == {
        key: value for key, value in old.items() if key not in ("job", "manifest")
    }
    assert new["job"] != old["job"]
    record = new["uptraining"]
    assert (record["before"], record["after"]) == (found["before"], found["after"])
    assert record["settings"]["hidden_loss"] == 0.5
    for name, entry in new["manifest"].items():
        data = (tmp_path / "out" / name).read_bytes()
        assert entry == {"bytes": len(data), "xxh3_128": xxhash.xxh3_128(data).hexdigest()}
    assert {*new["manifest"], "conversion.json"} == left(tmp_path / "out")


CHECKPOINTS = ("--checkpoint-every", "2")


@pytest.mark.parametrize("at", [0, 1, 2, 5, 11])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_answered_with_the_step_that_the_same_command_goes_on_from(
    uptrain: Uptrain,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
    number: signal.Signals,
) -> None:
    """Phases meet at step 3; checkpoints are at 2, 3, 4, 6, 8 and 10."""
    from headcount.uptrain.learner import Learner

    step = Learner.step

    def stopped(self: Any, number_of_step: int) -> float:
        if number_of_step == at:
            os.kill(os.getpid(), number)
        return step(self, number_of_step)

    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", stopped)
        result = uptrain(pair, *CHECKPOINTS)
    assert result.exit_code == 128 + number
    last = {0: 0, 1: 0, 2: 2, 5: 4, 11: 10}[at]
    work = tmp_path / ".out.uptraining"
    if last:
        goes_on = f"{work}: holds a checkpoint of step {last} of 12; the same command goes on"
        assert goes_on in result.stderr
    else:
        assert f"{work}: holds no checkpoint yet, so that the same command begins" in result.stderr
    again = uptrain(pair, *CHECKPOINTS)
    assert again.exit_code == 0
    assert (f"from step {last}\n" in again.stderr) == bool(last)


def test_the_head_of_the_report_has_its_units(
    uptrain: Uptrain, pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.uptrain import uptraining
    from headcount.uptrain.scores import Scores

    said = uptrain(pair, "--format", "table").stdout
    assert "1,536 tokens (12 steps of 4 rows of 32 tokens" in said
    assert "below the teacher's" not in said

    def scored(document: dict[str, Any]) -> Scores:
        """The true ones, with a loss that ends below the teacher's."""
        found = read(document)
        if found.kl_divergence == after["kl_divergence"]:
            return replace(found, loss=found.teacher_loss - 0.01)
        return found

    read, after = uptraining.read_scores, document(uptrain(pair))["after"]
    monkeypatch.setattr(uptraining, "read_scores", scored)
    (loss, divergence) = [
        line
        for line in uptrain(pair, "--format", "table").stdout.splitlines()
        if " closed " in line
    ]
    assert re.search(r"Gap in loss closed +1\d\d\.\d %", loss)
    assert "(the model's loss on this text is below the teacher's; go by the KL" in loss
    assert "below" not in divergence


@pytest.fixture(scope="session")
def undisturbed(pair: Pair, prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what a run writes, `out`, and its JSON, `report`."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = run_uptrain(pair, prose, folder / "out", *CHECKPOINTS)
    (folder / "report").write_text(json.dumps(document(done)))
    return folder


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("at", [0, 3, 5, 7, 11])
def test_a_killed_run_is_resumed_to_the_same_bytes(
    uptrain: Uptrain,
    pair: Pair,
    undisturbed: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    at: int,
) -> None:
    """Phases meet at step 3; checkpoints are at 2, 3, 4, 6, 8 and 10."""
    from headcount.uptrain.learner import Learner

    step, steps = Learner.step, []

    def dying(self: Any, number: int) -> float:
        if number == at and not steps:
            raise KilledError
        return step(self, number)

    def counting(self: Any, number: int) -> float:
        steps.append(number)
        return step(self, number)

    monkeypatch.setattr(Learner, "step", dying)
    with pytest.raises(KilledError):
        uptrain(pair, *CHECKPOINTS)
    assert left(tmp_path) == {".out.uptraining"}
    monkeypatch.setattr(Learner, "step", counting)
    resumed = document(uptrain(pair, *CHECKPOINTS))
    assert steps == list(range(at if at == 3 else at // 2 * 2, 12))
    assert contents(tmp_path / "out") == contents(undisturbed / "out")
    whole = json.loads((undisturbed / "report").read_text())
    assert resumed["history"] == whole["history"]
    assert left(tmp_path) == {"out"}


@pytest.mark.parametrize("broken", ["write_output", "sync_tree", "write_tensors"])
def test_a_failure_while_writing_leaves_no_target_and_is_resumed(
    uptrain: Uptrain,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: str,
) -> None:
    from safetensors import SafetensorError

    from headcount.uptrain import learner, uptraining
    from headcount.uptrain import training_folder as work

    homes = {"write_output": uptraining, "sync_tree": work, "write_tensors": learner}

    def fails(*_: Any) -> None:
        raise SafetensorError("No space left on device") if broken == "write_output" else OSError(5)

    with monkeypatch.context() as patch:
        patch.setattr(homes[broken], broken, fails)
        result = uptrain(pair)
    assert result.exit_code == 3, result.stderr
    assert "cannot be written" in result.stderr
    assert left(tmp_path) == {".out.uptraining"}
    document(uptrain(pair))
    assert left(tmp_path) == {"out"}


def test_what_is_done_is_not_done_again_and_nothing_is_replaced(
    uptrain: Uptrain, pair: Pair, tmp_path: Path
) -> None:
    first = document(uptrain(pair))
    before = contents(tmp_path / "out")
    again = document(uptrain(pair))
    assert (again["done_before"], again["seconds"]) == (True, None)
    assert (again["before"], again["after"]) == (first["before"], first["after"])
    other = uptrain(pair, "--seed", "1")
    assert other.exit_code == 2
    assert "name another --output-dir" in other.stderr
    assert contents(tmp_path / "out") == before
    assert left(tmp_path) == {"out"}


def test_checkpoints_of_other_options_are_kept_and_named(
    uptrain: Uptrain, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.uptrain import uptraining

    def fails(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(uptraining, "write_output", fails)
        assert uptrain(pair).exit_code == 3
    other = uptrain(pair, "--learning-rate", "1e-3")
    assert other.exit_code == 2
    assert "--learning-rate (there 0.003)" in other.stderr
    assert "--no-resume" in other.stderr
    assert left(tmp_path) == {".out.uptraining"}
    found = document(uptrain(pair, "--learning-rate", "1e-3", "--no-resume"))
    assert found["settings"]["learning_rate"] == 1e-3
    assert left(tmp_path) == {"out"}


def test_parts_of_a_batch_add_up_to_the_batch(uptrain: Uptrain, pair: Pair) -> None:
    terms = ("--hidden-loss", "0.3", "--cross-entropy", "0.2")
    whole = document(uptrain(pair, *terms))
    parts = document(uptrain(pair, *terms, "--gradient-accumulation", "2", target="parts"))
    assert parts["after"]["loss"] == pytest.approx(whole["after"]["loss"], rel=1e-5)
    for one, other in zip(whole["history"], parts["history"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-5)


def test_a_signal_while_checkpoints_are_removed_comes_too_late(
    uptrain: Uptrain, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headcount.uptrain import training_folder

    plain = training_folder.remove_folder

    def stopped(path: Path) -> bool:
        os.kill(os.getpid(), signal.SIGTERM)
        return plain(path)

    with monkeypatch.context() as patch:
        patch.setattr(training_folder, "remove_folder", stopped)
        result = uptrain(pair)
    assert result.exit_code == 143
    assert f"{tmp_path / 'out'}: is complete" in result.stderr
    assert left(tmp_path) == {"out"}
    assert document(uptrain(pair))["done_before"]


@pytest.mark.parametrize("name", ["checkpoint-000003/progress.json", "before.json"])
@pytest.mark.parametrize("content", ["", "[]", "{}", '{"step": "x"}', "\0\xff"])
def test_a_damaged_record_of_what_was_reached_is_named(
    uptrain: Uptrain,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    kept: Path,
    name: str,
    content: str,
) -> None:
    shutil.copytree(kept / ".out.uptraining", tmp_path / ".out.uptraining")
    (tmp_path / ".out.uptraining" / name).write_text(content)
    before = sorted(tmp_path.rglob("*"))
    result = uptrain(pair)
    assert (result.exit_code, "--no-resume" in result.stderr) == (2, True), result.stderr
    assert name.rpartition("/")[2] in result.stderr and "damaged" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(scope="session")
def kept(pair: Pair, prose: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the work folder of a run that was killed at step 3."""
    from headcount.uptrain.learner import Learner

    folder, step = tmp_path_factory.mktemp("kept"), Learner.step

    def dying(self: Any, number: int) -> float:
        if number == 3:
            raise KilledError
        return step(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Learner, "step", dying)
        with pytest.raises(KilledError):
            run_uptrain(pair, prose, folder / "out")
    return folder


def test_a_mount_point_is_refused_before_anything_is_trained(
    uptrain: Uptrain, pair: Pair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == tmp_path / "out")
    result = uptrain(pair)
    assert result.exit_code == 2
    assert "is a mount point" in result.stderr and str(tmp_path / "out" / "model") in result.stderr
    assert left(tmp_path) == {"out"}


def test_the_original_may_lie_on_several_devices(
    make_pair: MakePair, uptrain: Uptrain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With accelerate's real hooks: half of it is read from the disk when it is needed."""
    import torch

    from headcount.running import load
    from headcount.running.placement import Placement
    from headcount.uptrain import computing

    pair = make_pair("llama", num_key_value_heads=4)
    whole = document(uptrain(pair, target="whole"))
    parts = ("model.layers.0", "model.norm", "model.rotary_emb", "model.embed_tokens")
    apart = {**dict.fromkeys(parts, "cpu"), "model.layers.1": "disk", "lm_head": "disk"}
    monkeypatch.setattr(load, "DEVICE_MAP", apart)
    spread = Placement(inputs=torch.device("cpu"), spread=True)
    monkeypatch.setattr(computing, "resolve_placement", lambda name: spread)
    found = document(uptrain(pair, "--torch-device", "auto"))
    assert found["history"] == whole["history"]
    assert found["after"] == whole["after"]
