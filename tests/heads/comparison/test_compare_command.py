"""`headcount heads A --against B` as a user meets it, on real conversions of models whose heads do
what is known."""

import csv
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from headcount.cli import main
from hub_server import in_place_of_the_hub
from planted_heads import plant

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
FEW = ["--tokens", "16", "--sequences", "2"]


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(one) for one in arguments])


def compare(model: Path, against: Path, *more: str) -> str:
    result = invoke("heads", model, "--against", against, *FEW, *more)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def compared(model: Path, against: Path, *more: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(compare(model, against, "--format", "json", *more))
    return found


def convert(source: Path, target: Path, *options: str) -> Path:
    result = invoke("convert", source, target, *options)
    assert result.exit_code == 0, result.stderr
    return target


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A previous-token head, 0 of layer 0, and an induction head, 3 of layer 1; two K/V heads."""
    folder = tmp_path_factory.mktemp("planted")
    plant("llama").model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def deprived(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first K/V head for all: that of the previous-token head; the induction head's is gone."""
    target = tmp_path_factory.mktemp("deprived") / "mqa"
    return convert(planted, target, "--kv-heads", "1", "--method", "first")


@pytest.fixture(scope="module")
def paired(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of whose K/V heads 0 and 3, 1 and 2 are equal in the first layer, 0 and 2, 1 and 3 in
    the second; its query heads all differ."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
    )
    model = LlamaForCausalLM(config)
    with torch.no_grad():
        for value in model.parameters():
            value.add_(0.3 * torch.randn_like(value))
        for layer, twins in enumerate(({3: 0, 2: 1}, {2: 0, 3: 1})):
            attention = model.model.layers[layer].self_attn
            for projection in (attention.k_proj, attention.v_proj):
                heads = projection.weight.unflatten(0, (4, 8))
                for head, twin in twins.items():
                    heads[head] = heads[twin]
    folder = tmp_path_factory.mktemp("paired")
    model.save_pretrained(folder)
    return folder


def scores_of(document: dict[str, Any]) -> list[tuple[dict[str, float], dict[str, float]]]:
    heads = [head for layer in document["layers"] for head in layer["heads"]]
    return [(head["scores"]["before"], head["scores"]["after"]) for head in heads]


def test_heads_that_changed_places_are_found_by_the_record(paired: Path, tmp_path: Path) -> None:
    """A merge of equal heads changes nothing but places, so that every head scores what it did."""
    made = convert(paired, tmp_path / "gqa", "--kv-heads", "2", "--quality", "fast")
    document = compared(made, paired)
    places = [[head["head"]["after"] for head in layer["heads"]] for layer in document["layers"]]
    assert places == [[0, 2, 3, 1], [0, 2, 1, 3]]
    merged = [[each["merged"] for each in layer["key_value_heads"]] for layer in document["layers"]]
    assert merged == [[[0, 3], [1, 2]], [[0, 2], [1, 3]]]
    for before, after in scores_of(document):
        assert after == pytest.approx(before, abs=1e-4)
    values = [(round(b["entropy"], 3), round(b["distance"], 3)) for b, _ in scores_of(document)]
    assert len(set(values)) == len(values)  # or any order would have passed


@pytest.mark.parametrize("home", ["custom", "native"])
def test_pruned_heads_are_gone_and_the_others_keep_their_scores(
    paired: Path, tmp_path: Path, home: str
) -> None:
    """Of both homes: our modelling file computes heads that are gone, too. What layer 0 reads is
    what it was."""
    pruned = "0:0+3,1:0+3" if home == "native" else "0:0,1:3"
    made = convert(paired, tmp_path / "out", "--prune-heads", pruned, "--home", home)
    document = compared(made, paired)
    gone = [
        [head["head"]["before"] for head in layer["heads"] if head["head"]["after"] is None]
        for layer in document["layers"]
    ]
    wanted = [[0, 3], [0, 3]] if home == "native" else [[0], [3]]
    assert gone == wanted and document["heads"]["gone"] == sum(map(len, wanted))
    first = document["layers"][0]["heads"]
    stay = [head for head in first if head["head"]["after"] is not None]
    assert len(stay) == 4 - len(wanted[0])
    for head in stay:
        scores = head["scores"]
        same = {k: v for k, v in scores["before"].items() if k != "copying"}
        assert {k: scores["after"][k] for k in same} == pytest.approx(same, abs=1e-4)


def test_a_planted_head_without_its_keys_or_pruned_is_lost(
    planted: Path, deprived: Path, tmp_path: Path
) -> None:
    roles = compared(deprived, planted)["roles"]
    assert roles["previous_token"]["verdict"] == "kept"
    assert roles["induction"]["had"] == 1 and roles["induction"]["verdict"] == "lost"
    assert roles["induction"]["score"]["before"] > 0.9 > roles["induction"]["score"]["after"]
    made = convert(planted, tmp_path / "pruned", "--prune-heads", "0:1+3,1:1+3")
    document = compared(made, planted)
    assert document["roles"]["previous_token"]["kept"] == 1
    induction = document["roles"]["induction"]
    assert (induction["lost"], induction["gone"], induction["score"]["after"]) == (1, 1, 0.0)
    head = document["layers"][1]["heads"][3]
    assert head["lost"] == ["induction"] and head["head"] == {"before": 3, "after": None}
    assert head["scores"]["after"] is None


def test_a_model_against_itself_keeps_all(planted: Path) -> None:
    document = compared(planted, planted)
    assert {role: one["verdict"] for role, one in document["roles"].items()} == {
        "induction": "kept",
        "previous_token": "kept",
    }
    assert all(before == after for before, after in scores_of(document))


def test_the_verdict_comes_first_and_the_table_fits(planted: Path, deprived: Path) -> None:
    text = compare(deprived, planted, "--details")
    lines = text.splitlines()
    assert re.search(r"Verdict +1 of 2 roles kept \(1 lost, 0 gained\)", lines[2])
    assert "Induction heads   0 of 1 kept" in text
    assert re.search(r"^    1 .* I>·$", text, re.MULTILINE)
    assert re.search(r"^ +1 +0  0, 1 +0, 1, 2, 3 ", text, re.MULTILINE)
    shown = text.partition("Notes")[0].splitlines()[1:]  # without the names of two folders
    assert max(map(len, shown)) <= 120


def test_csv_has_a_row_a_head_and_says_what_json_does(planted: Path, deprived: Path) -> None:
    rows = list(csv.DictReader(compare(deprived, planted, "--format", "csv").splitlines()))
    layers = compared(deprived, planted)["layers"]
    heads = [(layer["index"], head) for layer in layers for head in layer["heads"]]
    assert [(int(row["layer"]), int(row["head_before"])) for row in rows] == [
        (layer, head["head"]["before"]) for layer, head in heads
    ]
    for row, (_, head) in zip(rows, heads, strict=True):
        assert row["roles_before"].split() == head["roles"]["before"]
        assert row["lost"].split() == head["lost"]
        assert float(row["induction_after"]) == head["scores"]["after"]["induction"]


def test_a_page_has_the_maps_of_both_side_by_side(
    planted: Path, deprived: Path, tmp_path: Path
) -> None:
    page = tmp_path / "page.html"
    compare(deprived, planted, "-o", str(page))
    text = page.read_text(encoding="utf-8")
    pair = r'<div class="row">\n<div>\n<h2>Induction before(.*?)\n</div>\n</div>\n</div>'
    row = re.search(pair, text, re.DOTALL)
    assert row is not None and "<h2>Induction now" in row[1]
    assert re.search(r'--hue: var\(--hue-0\); --share: 0.600">I&gt;·</td>', text)
    assert '<td class="error">lost</td>' in text


def test_thresholds_are_those_of_both(planted: Path, deprived: Path) -> None:
    strict = compared(deprived, planted, "--thresholds", "induction=1")
    assert "induction" not in strict["roles"]
    assert strict["settings"]["thresholds"]["induction"] == 1


def test_fewer_positions_are_the_tokens_of_both(save_model: SaveModel, tmp_path: Path) -> None:
    one, other = (
        save_model("llama", folder=f"of-{most}", max_position_embeddings=most) for most in (24, 64)
    )
    result = invoke("heads", one, "--against", other, "--sequences", "2", "--format", "json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["settings"]["tokens"] == 12


def test_models_of_the_hub_are_compared(
    planted: Path, deprived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(planted, tmp_path / "hub" / "org" / "model")
    with in_place_of_the_hub(tmp_path / "hub", tmp_path / "cache", monkeypatch):
        document = compared(deprived, Path("org/model"))
    assert document["roles"]["induction"]["verdict"] == "lost"


def test_models_that_cannot_be_compared_are_refused(
    save_model: SaveModel, planted: Path, deprived: Path, tmp_path: Path
) -> None:
    words = save_model("llama", folder="words", vocab_size=96, tokens="none")
    layers = save_model("llama", folder="layers", num_hidden_layers=3)
    plain = save_model("llama")
    other = shutil.copytree(plain, tmp_path / "other")
    content = json.loads((other / "tokenizer.json").read_text("utf-8"))
    vocabulary = content["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary |= {first: vocabulary[second], second: vocabulary[first]}
    (other / "tokenizer.json").write_text(json.dumps(content), "utf-8")
    broken = shutil.copytree(deprived, tmp_path / "broken")
    (broken / "conversion.json").write_text("{}")
    empty = tmp_path / "empty"
    empty.mkdir()
    for model, against, said in (
        (plain, words, "a vocabulary of"),
        (plain, other, "different tokenizers"),
        (plain, layers, "attentions in its decoder"),
        (broken, planted, "conversion.json: layers is not as a conversion writes it"),
        (planted, empty, "config.json"),
        (planted, tmp_path / "nowhere", "not a folder"),
    ):
        result = invoke("heads", model, "--against", against, *FEW)
        assert (result.exit_code, result.stdout) == (2, "")
        assert said in result.stderr and "Traceback" not in result.stderr
    result = invoke("heads", plain, "--against", plain, "--importance")
    assert result.exit_code == 2 and "--against does not go with --importance" in result.stderr
