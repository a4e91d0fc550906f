"""`headcount heads` as a user meets it."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from headcount.cli import main
from hub_server import COMMIT, in_place_of_the_hub
from planted_heads import plant
from several_processes import in_one, in_two

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
FEW = ["--tokens", "16", "--sequences", "2"]


def run(*arguments: str) -> str:
    result = CliRunner().invoke(main, ["heads", *arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("planted")
    plant("llama").model.save_pretrained(folder)
    return str(folder)


def test_the_map_shows_a_cell_a_head_and_what_it_cost(planted: str) -> None:
    text = run(planted, *FEW)
    layers = re.search(r"Layer +0 +1 +2 +3\n +0(.*)\n +1(.*)\n", text)
    assert layers is not None
    assert [row.split() for row in layers.groups()] == [["P", "·", "·", "·"], ["·", "·", "·", "I+"]]
    assert re.search(r"Cost +2 forward passes \(67 tokens", text)
    assert max(map(len, text.partition("Notes")[0].splitlines())) <= 120


def test_what_is_behind_the_map_is_shown_on_demand(planted: str) -> None:
    short, whole = run(planted, *FEW), run(planted, *FEW, "--details")
    assert len(short.splitlines()) < 24 and "--details also shows: heads with a role" in short
    assert "Entropy" in whole and "Entropy" not in short and "--details" not in whole
    assert short.splitlines()[-1] == whole.splitlines()[-1]


def test_json_and_csv_say_the_same(planted: str) -> None:
    document = json.loads(run(planted, *FEW, "--format", "json"))
    rows = list(csv.DictReader(run(planted, *FEW, "--format", "csv").splitlines()))
    heads = [(one["index"], head) for one in document["layers"] for head in one["heads"]]
    assert [(int(row["layer"]), int(row["head"])) for row in rows] == [
        (layer, head["head"]) for layer, head in heads
    ]
    for row, (_, head) in zip(rows, heads, strict=True):
        assert row["roles"].split() == head["roles"]
        assert float(row["induction"]) == head["scores"]["induction"]
    assert document["roles"]["induction"] == [[1, 3]]
    assert document["layers"][1]["key_value_heads"][1]["induction_heads"] == [3]
    assert document["settings"]["tokens"] == 16


@pytest.mark.slow
def test_of_two_processes_of_a_launcher_the_main_one_prints(planted: str) -> None:
    one, two = (run_in("heads", planted, *FEW, "--format", "json") for run_in in (in_one, in_two))
    assert (one.returncode, two.returncode) == (0, 0), two.stderr
    documents = [json.loads(done.stdout) for done in (one, two)]
    assert documents[0]["layers"] == documents[1]["layers"]


def test_a_page_has_a_map_of_every_score(planted: str, tmp_path: Path) -> None:
    page = tmp_path / "heads.html"
    run(planted, *FEW, "-o", str(page))
    text = page.read_text(encoding="utf-8")
    for title in ("Role of each head", "Induction: share of attention", "Previous token: share"):
        assert f"<h2>{title}" in text
    assert re.search(r'<td class="shade" style="--hue: var\(--hue-0\); [^"]*">I\+</td>', text)


def test_thresholds_decide_roles(planted: str) -> None:
    strict = json.loads(run(planted, *FEW, "--thresholds", "induction=1", "--format", "json"))
    assert strict["roles"]["induction"] == []
    assert strict["roles"]["previous_token"] == [[0, 0]]


def test_a_seed_gives_the_same_atlas_again(save_model: SaveModel) -> None:
    model = str(save_model("gpt2"))
    first, again, other = (
        json.loads(run(model, *FEW, "--seed", seed, "--format", "json")) for seed in "112"
    )
    assert first["layers"] == again["layers"] != other["layers"]


def test_an_encoder_is_given_the_same_tokens(tmp_path: Path) -> None:
    """Every layer has two attentions, and the cross-attention sees the encoding of one copy."""
    from transformers import BartConfig, BartForConditionalGeneration

    names = ("encoder_layers", "encoder_ffn_dim", "decoder_layers", "decoder_ffn_dim")
    config = BartConfig(
        vocab_size=60,
        d_model=32,
        encoder_attention_heads=2,
        decoder_attention_heads=4,
        max_position_embeddings=64,
        **dict.fromkeys(names, 4),
    )
    BartForConditionalGeneration(config).save_pretrained(tmp_path)
    document = json.loads(run(str(tmp_path), *FEW, "--format", "json"))
    kinds = [(one["index"], one["kind"], len(one["heads"])) for one in document["layers"]]
    assert kinds == [
        (layer, kind, 4) for layer in range(4) for kind in ("attention", "cross_attention")
    ]
    cross = document["layers"][1]["heads"][0]["scores"]
    assert -1 <= cross["alignment"] <= 1 and cross["induction"] is None
    assert document["settings"]["start_id"] == config.decoder_start_token_id


def test_an_encoder_of_sound_is_stood_in_for_by_noise(tmp_path: Path) -> None:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        vocab_size=60,
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_target_positions=64,
        **dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 1),
        decoder_start_token_id=2,
    )
    WhisperForConditionalGeneration(config).save_pretrained(tmp_path)
    result = CliRunner().invoke(main, ["heads", str(tmp_path), *FEW, "--format", "json"])
    assert result.exit_code == 0, result.stderr
    assert "reads input_features, not tokens" in result.stderr
    layers = json.loads(result.stdout)["layers"]
    assert len(layers) == 4
    assert {head["scores"]["alignment"] for one in layers for head in one["heads"]} == {None}


def test_a_model_without_heads_is_refused_by_name(tmp_path: Path) -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=60, hidden_size=16, num_hidden_layers=1)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    result = CliRunner().invoke(main, ["heads", str(tmp_path)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert "has no attention in its decoder" in result.stderr


def test_a_model_of_the_hub_is_downloaded(
    planted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(planted, tmp_path / "hub" / "org" / "model")
    with in_place_of_the_hub(tmp_path / "hub", tmp_path / "cache", monkeypatch):
        document = json.loads(run("org/model", *FEW, "--format", "json"))
    assert document["model"]["id"] == f"org/model@{COMMIT}"
    assert document["roles"]["induction"] == [[1, 3]]


def test_a_window_too_short_for_a_repetition_is_said(save_model: SaveModel) -> None:
    model = str(save_model("mistral", sliding_window=8))
    result = CliRunner().invoke(main, ["heads", model, *FEW, "--format", "json"])
    assert result.exit_code == 0, result.stderr
    assert "window shorter than 16 tokens" in result.stderr
    head = json.loads(result.stdout)["layers"][0]["heads"][0]
    assert head["scores"]["induction"] is None and head["scores"]["previous_token"] > 0


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["./nowhere"], "nowhere"),
        (["{model}", "--tokens", "1k"], "1,024"),
        (["{model}", "--tokens", "2"], "at least 3"),
        (["{model}", "--thresholds", "indcution=0.2"], "no role is called 'indcution'"),
        (["{model}", "--thresholds", "induction=2"], "induction=2"),
        (["{model}", "--dtype", "float17"], "float17"),
        (["{model}", "--torch-device", "tpu"], "tpu"),
        (["{model}", "--sequences", "0"], "--sequences"),
    ],
)
def test_a_mistake_gets_a_message(
    save_model: SaveModel, arguments: list[str], expected: str
) -> None:
    model = str(save_model("llama"))
    result = CliRunner().invoke(main, ["heads", *(a.format(model=model) for a in arguments)])
    assert (result.exit_code, result.stdout) == (2, "")
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
