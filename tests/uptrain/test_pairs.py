"""`uptrain` of encoder-decoders on pairs, against what transformers' own classes give."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from safetensors.torch import load_file

from conversions import contents
from encoder_decoders import ENCODER_DECODERS
from headcount.audit import audit_model
from headcount.cli import main
from headcount.library.schemas import schema_of
from several_processes import in_two

from .conftest import Pair, document
from .pairs import Taught, make_taught, run, words_of
from .test_processes import same

pytestmark = pytest.mark.needs_convert
TERMS = ("--hidden-loss", "0.3", "--cross-entropy", "0.2")


@pytest.fixture(scope="session")
def all_taught(tmp_path_factory: pytest.TempPathFactory, tokenizer: Any) -> dict[str, Taught]:
    return {
        name: make_taught(name, tmp_path_factory.mktemp(name), tokenizer)
        for name in ENCODER_DECODERS
    }


@pytest.fixture(params=sorted(ENCODER_DECODERS))
def taught(request: pytest.FixtureRequest, all_taught: dict[str, Taught]) -> Taught:
    return all_taught[request.param]


@pytest.fixture
def t5(all_taught: dict[str, Taught]) -> Taught:
    return all_taught["t5"]


def load(folder: Path) -> Any:
    """With the class that the config names, transformers' own but where the file of ours is it."""
    from transformers import AutoModelForSeq2SeqLM, AutoModelForSpeechSeq2Seq

    is_speech = "whisper" in json.loads((folder / "config.json").read_text())["model_type"]
    auto = AutoModelForSpeechSeq2Seq if is_speech else AutoModelForSeq2SeqLM
    return auto.from_pretrained(folder).eval()


def examples(taught: Taught, tokenizer: Any, longest: int = 24) -> list[tuple[dict[str, Any], Any]]:
    """What a model is called with for each line, with labels, which it shifts itself."""
    import torch

    found = []
    for line in taught.pairs.read_text().splitlines():
        pair = json.loads(line)
        labels = torch.tensor([tokenizer(pair["target"])["input_ids"][:longest]])
        if "features" in pair:
            features = np.load(taught.pairs.parent / pair["features"])
            given = {"input_features": torch.from_numpy(features)[None]}
        else:
            given = {"input_ids": torch.tensor([tokenizer(pair["source"])["input_ids"][:longest]])}
        found.append((given, labels))
    return found


def held_out(found: list[tuple[dict[str, Any], Any]], tokens: int) -> int:
    """How many pairs at the end have at most that many tokens, and a tenth."""
    sizes = [labels.numel() for _, labels in found]
    most, count = min(tokens, round(sum(sizes) / 10)), 0
    while sum(sizes[len(sizes) - count - 1 :]) <= most:
        count += 1
    return count


def test_scores_are_those_of_the_pairs_that_were_held_out(
    taught: Taught, tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    found = document(run(taught, tmp_path / "out", "--steps", 60))
    all_pairs = examples(taught, tokenizer)
    held = all_pairs[len(all_pairs) - held_out(all_pairs, 90) :]
    tokens = sum(labels.numel() for _, labels in held)
    assert found["held_out"] == {"rows": len(held), "tokens": tokens}
    assert 1 < len(held) < 10
    folders = {"teacher": taught.original, "before": taught.converted, "after": tmp_path / "out"}
    logs: dict[str, Any] = {}
    for name, folder in folders.items():
        model = load(folder)
        with torch.no_grad():
            outputs = [(model(**given, labels=labels), labels) for given, labels in held]
        logs[name] = torch.cat([o.logits[0].double().log_softmax(-1) for o, _ in outputs])
        loss = sum(o.loss.item() * labels.numel() for o, labels in outputs) / tokens
        said = found["teacher_scores" if name == "teacher" else name]["loss"]
        assert said == pytest.approx(loss, rel=1e-5), name
    for name in ("before", "after"):
        kl = (logs["teacher"].exp() * (logs["teacher"] - logs[name])).sum(-1).mean().item()
        assert found[name]["kl_divergence"] == pytest.approx(kl, rel=1e-4)
    assert found["after"]["kl_divergence"] < 0.9 * found["before"]["kl_divergence"]
    assert (found["targets"], found["texts"]) == ("as given", [])


def test_the_loss_of_a_step_is_the_mean_over_the_tokens_of_the_batch(
    taught: Taught, tokenizer: Any, tmp_path: Path
) -> None:
    """Targets are of unequal lengths: it is not the mean of the pairs' means."""
    import torch

    options = ("--steps", 1, "--batch-size", 8, "--temperature", 2.0, *TERMS)
    found = document(run(taught, tmp_path / "out", *options, "--seed", 5))
    all_pairs = examples(taught, tokenizer)
    train = all_pairs[: len(all_pairs) - held_out(all_pairs, 90)]
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(5 * 1_000_003))
    batch = [train[number] for number in order[:8].tolist()]
    student, teacher = load(taught.converted), load(taught.original)
    total, means, count = 0.0, [], 0
    for given, labels in batch:
        with torch.no_grad():
            mine, theirs = (
                model(**given, labels=labels, output_hidden_states=True)
                for model in (student, teacher)
            )
        logs = [(o.logits[0].double() / 2).log_softmax(-1) for o in (mine, theirs)]
        kl = 4 * (logs[1].exp() * (logs[1] - logs[0])).sum().item() / labels.numel()
        hidden = [
            ((a - b).square().sum(-1) / b.square().sum(-1)).mean().item()
            for side in ("encoder_hidden_states", "decoder_hidden_states")
            for a, b in list(zip(mine[side], theirs[side], strict=True))[1:]
        ]
        assert len(hidden) == 4
        means.append(kl + 0.2 * mine.loss.item() + 0.3 * float(np.mean(hidden)))
        total += means[-1] * labels.numel()
        count += labels.numel()
    assert found["history"][-1]["loss"] == pytest.approx(total / count, rel=1e-5)
    assert abs(np.mean(means) - total / count) > 1e-3 * total / count
    assert found["tokens"] == count


def test_parts_of_a_batch_add_up_to_the_batch(taught: Taught, tmp_path: Path) -> None:
    whole = document(run(taught, tmp_path / "whole", *TERMS))
    parts = document(run(taught, tmp_path / "parts", *TERMS, "--gradient-accumulation", 2))
    for one, other in zip(whole["history"], parts["history"], strict=True):
        assert other["loss"] == pytest.approx(one["loss"], rel=1e-6)
    assert parts["after"]["loss"] == pytest.approx(whole["after"]["loss"], rel=1e-6)


def test_two_processes_learn_what_one_learns(all_taught: dict[str, Taught], tmp_path: Path) -> None:
    taught = all_taught["bart"]
    done = in_two(*words_of(taught, tmp_path / "two", *TERMS))
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)
    assert (two["processes"], two["sharded"]) == (2, False)
    same(document(run(taught, tmp_path / "one", *TERMS)), two)


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("--shard", "--gradient-accumulation", 2)])
def test_processes_share_every_kind(
    taught: Taught, tmp_path: Path, options: tuple[object, ...]
) -> None:
    done = in_two(*words_of(taught, tmp_path / "two", *TERMS, *options))
    assert done.returncode == 0, done.stderr
    two = json.loads(done.stdout)
    assert (two["processes"], two["sharded"]) == (2, bool(options))
    same(document(run(taught, tmp_path / "one", *TERMS)), two)
    files = [{path.name for path in (tmp_path / name).iterdir()} for name in ("one", "two")]
    assert files[0] == files[1]


def test_attention_of_both_stacks_and_norms_learn_first(taught: Taught, tmp_path: Path) -> None:
    """Weights that transformers keeps fixed, Whisper's sinusoids, never move."""
    old = load_file(taught.converted / "model.safetensors")
    moved = {}
    for phase_one in (1, 0):
        document(run(taught, tmp_path / str(phase_one), "--phase-one", phase_one))
        new = load_file(tmp_path / str(phase_one) / "model.safetensors")
        assert new.keys() == old.keys()
        moved[phase_one] = {name for name in new if not new[name].equal(old[name])}
    attention = {n for n in old if "attn" in n.lower() or "attention" in n.lower()}
    norms = {n for n in old if "norm" in n.lower()}
    fixed = {n for n in old if n.endswith(("encoder.embed_positions.weight", "final_logits_bias"))}
    if taught.original.parent.name.startswith("bart"):
        fixed = {n for n in fixed if n.endswith("final_logits_bias")}
    # A bias of all keys alike changes no softmax: its gradient is noise, or nothing.
    still = {n for n in attention if n.endswith("k_proj.bias")}
    for stack in ("encoder", "decoder"):
        assert any(stack in n for n in moved[1] & attention)
    assert any("EncDecAttention" in n or "encoder_attn" in n for n in moved[1])
    assert attention | norms >= moved[1] >= (attention | norms) - still
    assert moved[0] >= set(old) - fixed - still
    assert not fixed & moved[0]


@pytest.mark.parametrize("at", [2, 3, 7])
def test_a_run_that_was_stopped_goes_on_to_the_same_bytes(
    taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    from headcount.uptrain.learner import Learner

    step = Learner.step

    def dying(self: Any, number: int) -> float:
        if number == at:
            raise KeyboardInterrupt
        return step(self, number)

    every = ("--checkpoint-every", 2)
    whole = document(run(taught, tmp_path / "whole", *every))
    with monkeypatch.context() as patch:
        patch.setattr(Learner, "step", dying)
        assert run(taught, tmp_path / "out", *every).exit_code == 130
    resumed = run(taught, tmp_path / "out", *every)
    assert f"from step {at if at == 3 else at // 2 * 2}" in resumed.stderr
    assert document(resumed)["history"] == whole["history"]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")
    assert document(run(taught, tmp_path / "out", *every))["done_before"]


def test_the_result_is_a_whole_model_that_evaluate_measures(taught: Taught, tmp_path: Path) -> None:
    import hashlib

    jsonschema = pytest.importorskip("jsonschema", reason="is in the extra test")
    out = tmp_path / "out"
    found = document(run(taught, out))
    validator = jsonschema.Draft202012Validator(schema_of("uptrain"))
    assert [error.message for error in validator.iter_errors(found)] == []
    assert {p.name for p in out.iterdir()} == {p.name for p in taught.converted.iterdir()}
    old, new = (load_file(folder / "model.safetensors") for folder in (taught.converted, out))
    assert {n: (t.shape, t.dtype) for n, t in new.items()} == {
        n: (t.shape, t.dtype) for n, t in old.items()
    }
    assert not [f for f in audit_model(str(out)).findings if f.severity != "note"]
    record = json.loads((out / "conversion.json").read_text())["uptraining"]
    assert record["pairs"] == [{"sha256": hashlib.sha256(taught.pairs.read_bytes()).hexdigest()}]
    assert record["targets"] == "as given"
    said = CliRunner().invoke(
        main,
        [
            *("evaluate", str(out), "--against", str(taught.original)),
            *("--pairs", str(taught.pairs), "--format", "json"),
        ],
    )
    assert said.exit_code == 0, said.stderr
    assert json.loads(said.stdout)["kl_divergence"] > 0


def test_of_a_text_the_original_says_the_targets(
    taught: Taught, tokenizer: Any, tmp_path: Path
) -> None:
    import torch

    text = tmp_path / "lines.txt"
    lines = [json.loads(line)["target"] for line in taught.pairs.read_text().splitlines()]
    text.write_text("\n\n".join(lines), encoding="utf-8")
    short = ("--text", text, "--steps", 4)
    result = run(taught, tmp_path / "out", *short)
    if taught.original.parent.name.startswith("whisper"):
        assert (result.exit_code, "features" in result.stderr) == (2, True)
        assert list(tmp_path.iterdir()) == [text]
        return
    found = document(result)
    assert (found["targets"], found["pairs"]) == ("said by the teacher", [])
    assert [file["name"] for file in found["texts"]] == [str(text)]
    teacher, said = load(taught.original), []
    for line in lines[:18]:  # no more than the steps read, and a tenth
        source = torch.tensor([tokenizer(line)["input_ids"][:24]])
        ids = teacher.generate(input_ids=source, max_new_tokens=64, do_sample=False)[:, 1:25]
        said.append(({"input_ids": source}, ids))
    held = said[len(said) - held_out(said, 90) :]
    tokens = sum(ids.numel() for _, ids in held)
    assert found["held_out"] == {"rows": len(held), "tokens": tokens}
    with torch.no_grad():
        losses = [teacher(**given, labels=ids).loss.item() * ids.numel() for given, ids in held]
    assert found["teacher_scores"]["loss"] == pytest.approx(sum(losses) / tokens, rel=1e-5)
    assert document(run(taught, tmp_path / "out", *short))["done_before"]


def refused(taught: Taught, target: Path, *options: object) -> str:
    result = run(taught, target, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert not target.exists()
    return result.stderr


def test_pairs_that_cannot_be_learned_are_refused(
    t5: Taught, all_taught: dict[str, Taught], tmp_path: Path
) -> None:
    out, lines = tmp_path / "out", t5.pairs.read_text().splitlines()
    few = tmp_path / "few.jsonl"
    few.write_text("\n".join(lines[:2]), encoding="utf-8")
    assert "give more pairs" in refused(t5._replace(pairs=few), out)
    few.write_text("\n".join(lines[:30]), encoding="utf-8")
    assert "smaller --batch-size" in refused(t5._replace(pairs=few), out, "--batch-size", 40)
    speech = all_taught["whisper"]
    assert '"source", text' in refused(t5._replace(pairs=speech.pairs), out)
    assert '"features"' in refused(speech._replace(pairs=t5.pairs), out)
    few.write_text('{"source": "a"}', encoding="utf-8")
    assert "line 1" in refused(t5._replace(pairs=few), out)
    text = tmp_path / "text.txt"
    text.write_text("the cat\n", encoding="utf-8")
    assert "give one of them" in refused(t5, out, "--text", text, "--pairs", t5.pairs)
    assert "was made from" in refused(t5._replace(original=all_taught["bart"].original), out)


def test_what_there_is_to_learn_from_has_to_be_named(
    t5: Taught, pair: Pair, tmp_path: Path
) -> None:
    def said(folders: tuple[Path, Path], *given: object) -> str:
        original, converted = folders
        words = ("uptrain", converted, "--teacher", original, "--output-dir", tmp_path / "out")
        result = CliRunner().invoke(main, [str(word) for word in (*words, *given)])
        assert (result.exit_code, result.stdout) == (2, "")
        assert list(tmp_path.iterdir()) == []
        return result.stderr

    assert "of a decoder give --text" in said(pair, "--pairs", t5.pairs)
    assert "give --text FILE" in said(pair) and "--pairs" not in said(pair)
    assert "--pairs FILE" in said((t5.original, t5.converted))


def test_features_that_are_replaced_are_another_job(
    all_taught: dict[str, Taught], tmp_path: Path
) -> None:
    """The file of pairs names them, and is the same."""
    folder = tmp_path / "whisper"
    shutil.copytree(all_taught["whisper"].pairs.parent, folder)
    taught = Taught(folder / "original", folder / "converted", folder / "pairs.jsonl")
    document(run(taught, tmp_path / "out"))
    features = np.load(folder / "3.npy")
    np.save(folder / "3.npy", features + 1)
    again = run(taught, tmp_path / "out")
    assert again.exit_code == 2
    assert "name another --output-dir" in again.stderr
