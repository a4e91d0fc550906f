"""The model card of a conversion: how it is loaded, and what an evaluation found."""

import hashlib
import json
import os
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from huggingface_hub import ModelCard

from conversions import run
from encoder_decoders import ENCODER_DECODERS
from headcount.cli import main

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
SHORT = ["--max-tokens", "64", "--no-speed", "--behaviour", "none", "--no-roles"]


def invoked(*words: str) -> Result:
    return CliRunner().invoke(main, [*words, *SHORT])


def figures(folder: Path) -> dict[str, list[str]]:
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \|$", card(folder), flags=re.M)
    return {title: [own, other] for title, own, other in rows}


def card(folder: Path) -> str:
    return str(ModelCard.load(folder / "README.md").content)


@pytest.mark.parametrize(
    ("name", "options", "task"),
    [
        ("llama", {"kv": 1}, "text-generation"),
        ("gpt2", {"kv": 1}, "text-generation"),
        ("llama", {"kv": {0: 1}}, "text-generation"),
        ("llama", {"latent": 8}, "text-generation"),
        ("llama", {"latent": 16, "home": "mla"}, "text-generation"),
        ("t5", {"kv": 1}, None),
        ("whisper", {"kv": 1}, "automatic-speech-recognition"),
    ],
)
def test_its_lines_load_the_model_and_let_it_speak(
    save_model: SaveModel,
    tmp_path: Path,
    tokenizer: Any,
    capsys: pytest.CaptureFixture[str],
    name: str,
    options: dict[str, Any],
    task: str | None,
) -> None:
    target = tmp_path / "out"
    if name in ENCODER_DECODERS:
        ENCODER_DECODERS[name](len(tokenizer)).save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
    source = tmp_path / name if name in ENCODER_DECODERS else save_model(name)
    run(source, target, **{"kv": None, **options})
    lines, found = loading_of(target)
    saved = json.loads((target / "config.json").read_text())["architectures"][0]
    assert type(found["model"]).__name__ == saved
    loads = 2 if "AutoTokenizer" in lines else 1
    own = loads if "auto_map" in (target / "config.json").read_text() else 0
    assert lines.count("trust_remote_code=True") == own
    assert ModelCard.load(target / "README.md").data.to_dict().get("pipeline_tag") == task
    if name == "whisper":
        assert "generate" not in lines  # which hears
        return
    said = found["tokenizer"].decode(found["output"][0], skip_special_tokens=True)
    assert capsys.readouterr().out == f"{said}\n"
    if name != "t5":
        assert said.startswith(found["tokenizer"].decode(found["text"].input_ids[0]))


def loading_of(folder: Path) -> tuple[str, dict[str, Any]]:
    """The lines of a card that load its model, and what they have left."""
    (lines,) = re.findall(r"```python\n(.*?)```", card(folder), flags=re.S)
    found: dict[str, Any] = {}
    exec(lines.replace("FOLDER", str(folder)), found)
    return lines, found


def test_without_a_tokenizer_the_model_alone_is_loaded(
    save_model: SaveModel, tmp_path: Path
) -> None:
    target = tmp_path / "out"
    run(save_model("llama", tokens="none"), target, 1)
    lines, found = loading_of(target)
    assert type(found["model"]).__name__ == "LlamaForCausalLM" and "okenizer" not in lines
    assert "There is no tokenizer beside it." in card(target)
    assert "pipeline_tag" not in card(target)  # it may say anything


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kv": 1}, ()),
        ({"kv": 1, "method": "merge", "calibration_tokens": 64}, ("calibrated",)),
        ({"latent": 16, "calibration_tokens": 64}, ("calibrated",)),
        ({"pruned_heads": Fraction(1, 2), "calibration_tokens": 64}, ("query heads chosen",)),
    ],
)
def test_it_says_how_much_of_which_text_was_read(
    save_model: SaveModel,
    text_file: Path,
    tmp_path: Path,
    options: dict[str, Any],
    said: tuple[str, ...],
) -> None:
    text = {"calibration": str(text_file)} if said else {}
    run(save_model("llama"), tmp_path / "out", **{"kv": None, **options, **text})
    digest = hashlib.sha256(text_file.read_bytes()).hexdigest()[:16]
    method = re.findall(r"^- Method: (.*)\.$", card(tmp_path / "out"), flags=re.M)[0]
    read = [f"{what} on a text (64 tokens, SHA-256 {digest})" for what in said]
    assert method.endswith(", ".join(read) or "from the weights alone")
    assert method.count("on a text") == len(said)


@pytest.mark.parametrize(("options", "after"), [({"kv": 1}, 64), ({"latent": 24}, 96)])
def test_it_says_bytes_of_a_token_with_their_type(
    save_model: SaveModel, tmp_path: Path, options: dict[str, int], after: int
) -> None:
    report = run(save_model("llama"), tmp_path / "out", **{"kv": None, **options})
    layers, first = len(report.plan.layers), report.plan.layers[0]
    before = 4 * 2 * first.before * first.head_dim
    line = f"{before * layers:,} to {after * layers:,} bytes (float32)."
    assert f"- Cache of a token, in these layers: {line}" in card(tmp_path / "out")


def test_convert_writes_what_its_evaluation_found(save_model: SaveModel, tmp_path: Path) -> None:
    target = tmp_path / "out"
    words = ("convert", str(save_model("llama")), str(target), "--kv-heads", "1")
    result = invoked(*words, "--evaluate", "--format", "json")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)["evaluation"]
    rows = figures(target)
    losses = [f"{found[which]['loss']:.4f}" for which in ("model", "against")]
    assert rows["Loss, nats a token"] == losses
    assert rows["KL divergence, nats a token"] == [f"{found['kl_divergence']:.4f}", ""]
    assert str(tmp_path) not in card(target)
    again = CliRunner().invoke(main, list(words))
    assert "already done" in again.stdout, again.stderr
    assert CliRunner().invoke(main, ["convert", "--verify", str(target)]).exit_code == 0
    assert sorted(path.name for path in tmp_path.iterdir()).count("out") == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".out")]


def test_a_later_evaluation_takes_the_place_of_an_earlier_one(
    save_model: SaveModel, tmp_path: Path
) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    run(source, target, 1)
    before = card(target)
    words = ("evaluate", str(target), "--against", str(source))
    assert invoked(*words).exit_code == 0
    assert card(target) == before
    text = tmp_path / "own | text.txt"
    text.write_text("five words of a text, " * 50)
    for more in ((), ("--text", str(text))):
        result = invoked(*words, "--card", *more)
        assert result.exit_code == 0, result.stderr
    assert card(target).count("## Evaluation") == 1
    said, _, none = before.partition("<!-- evaluation -->")
    assert "Not evaluated." in none and "Not evaluated" not in card(target)
    assert card(target).startswith(said.rstrip())
    assert "own" in card(target).split("## Evaluation")[1]


def test_the_command_on_a_card_evaluates_the_model(save_model: SaveModel, tmp_path: Path) -> None:
    source, target, text = save_model("llama"), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("five words of a text, " * 50)
    run(source, target, 1)
    (line,) = re.findall(r"```sh\n(headcount .*)\n```", card(target))
    places = {"FOLDER": str(target), "ORIGINAL": str(source), "TEXT": str(text)}
    words = [places.get(word, word) for word in line.split()[1:]]
    assert invoked(*words).exit_code == 0
    assert "| | this model | the original |" in card(target)
    assert figures(target)["Top-1 agreement"][0].endswith("%")


def test_a_warning_of_the_text_goes_into_the_card(save_model: SaveModel, tmp_path: Path) -> None:
    """And names neither folders nor places of files."""
    source, target, text = save_model("llama"), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("five words of a text, " * 600)
    run(source, target, 1)
    words = ("evaluate", str(target), "--card", "--text", str(text))
    for more, name in ((("--against", str(source)), "original"), ((), "model")):
        done = CliRunner().invoke(main, [*words, *SHORT[2:], *more])
        assert done.exit_code == 0, done.stderr
        assert f"{text} does not suit the model" in done.stderr
        (line,) = re.findall(r"^- (.* does not suit the model, .*)$", card(target), flags=re.M)
        loss, told, entropy = re.findall(r"loss of (.*) nats .* is (.*) than (.*), which", line)[0]
        assert told == ("worse" if float(loss) > float(entropy) else "hardly better")
        who = {"original": "The original", "model": "This model"}[name]
        assert line.startswith(f"{who}: a loss of ") and "text.txt does not suit" in line
        assert str(tmp_path) not in card(target)
    few = CliRunner().invoke(main, [*words, *SHORT])
    assert "only 64 tokens were scored" in few.stderr
    assert "- text.txt: only 64 tokens were scored" in card(target)


def test_a_card_that_is_not_ours_is_left_alone(save_model: SaveModel, tmp_path: Path) -> None:
    source, target = save_model("llama"), tmp_path / "out"
    result = invoked("evaluate", str(source), "--card")
    assert result.exit_code == 2
    assert "no output of headcount" in result.stderr
    run(source, target, 1)
    with (target / "README.md").open("a") as file:
        file.write("My own words.\n")
    mine = card(target)
    result = invoked("evaluate", str(target), "--card")
    assert result.exit_code == 2
    assert "by hand" in result.stderr
    assert card(target) == mine


def test_a_text_that_the_model_was_fitted_to_is_said(save_model: SaveModel, tmp_path: Path) -> None:
    """In the answer, its document and the card, whatever the file is called now."""
    source, target, text = save_model("llama"), tmp_path / "out", tmp_path / "text.txt"
    text.write_text("five words of a text, " * 600)
    options = ("--quality", "good", "--calibration", str(text), "--calibration-tokens", "512")
    convert = ["convert", str(source), str(target), "--kv-heads", "1", *options]
    done = CliRunner().invoke(main, convert)
    assert done.exit_code == 0, done.stderr
    renamed, other = text.rename(tmp_path / "renamed.txt"), tmp_path / "other.txt"
    other.write_text("other words in a text, " * 600)
    words = ("evaluate", str(target), "--card", "--format", "json", "--text")
    said = "the model was fitted to it, as its conversion.json says"
    for file, is_read in ((renamed, True), (other, False)):
        done = invoked(*words, str(file))
        assert done.exit_code == 0, done.stderr
        warnings = json.loads(done.stdout)["warnings"]
        assert any(f"{file}: {said}" in line for line in warnings) == is_read
        assert (f"{file.name}: {said}" in card(target)) == is_read
        assert (said in done.stderr) == is_read


@pytest.mark.parametrize("broken", ["{", "", "fifo"])
def test_a_record_that_cannot_be_read_is_said(
    save_model: SaveModel, tmp_path: Path, broken: str
) -> None:
    model, text = save_model("llama"), tmp_path / "text.txt"
    text.write_text("five words of a text, " * 50)
    record = model / "conversion.json"  # a FIFO would be waited for
    if broken == "fifo":
        os.mkfifo(record)
    else:
        record.write_text(broken)
    done = invoked("evaluate", str(model), "--text", str(text))
    assert done.exit_code == 0, done.stderr
    assert "whether the model was fitted to the text is not known: " in done.stderr
    assert str(record) in done.stderr
