"""`headcount heads --importance` as a user meets it, and the order that it compares."""

import csv
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import pretended_gpu
from headcount.cli import main
from headcount.heads.importance.rank_correlation import spearman

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
FEW = ("--importance", "--max-tokens", "256")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["heads", *map(str, arguments)])


def test_json_and_csv_have_both_and_how_alike_they_are(save_model: SaveModel) -> None:
    model = save_model("llama")
    done = {form: run(model, *FEW, "--exact", "--format", form) for form in ("json", "csv")}
    assert all(result.exit_code == 0 for result in done.values()), done["json"].stderr
    found = json.loads(done["json"].stdout)
    assert found["text"]["tokens"] <= 256
    assert [layer["index"] for layer in found["layers"]] == [0, 1]
    flat = {
        kind: [score for layer in found["layers"] for score in layer[kind]]
        for kind in ("exact", "estimate")
    }
    assert len(flat["exact"]) == len(flat["estimate"]) == 8
    assert found["rank_correlation"] == pytest.approx(spearman(flat["exact"], flat["estimate"]))
    rows = list(csv.DictReader(done["csv"].stdout.splitlines()))
    assert [float(row["exact"]) for row in rows] == [
        score for layer in found["layers"] for score in layer["exact"]
    ]
    assert [int(row["key_value_head"]) for row in rows] == [0, 0, 1, 1] * 2


def test_without_exact_the_table_says_the_estimate(save_model: SaveModel) -> None:
    done = run(save_model("llama"), *FEW)
    assert done.exit_code == 0, done.stderr
    assert "Estimate, thousandths of a nat a token" in done.stdout
    assert "--exact also measures each head" in done.stdout
    assert "Estimate to exact" not in done.stdout


def test_a_page_has_a_map_of_both(save_model: SaveModel, tmp_path: Path) -> None:
    done = run(save_model("llama"), *FEW, "--exact", "-o", tmp_path / "page.html")
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for title in ("Loss added by mean ablation", "Estimate"):
        assert f"<h2>{title}" in page


def test_the_model_runs_on_the_device_that_is_asked_for(
    save_model: SaveModel, tmp_path: Path
) -> None:
    """On one that refuses to mix its tensors with the CPU's, with the CPU's numbers."""
    model, asked = save_model("llama"), (*FEW, "--exact", "--format", "json")
    words = ["heads", str(model), *asked, "--torch-device", "cuda", "-o", str(tmp_path / "it")]
    ran = subprocess.run(
        [sys.executable, pretended_gpu.__file__],
        input=json.dumps([{"words": words, "layers": None}]),
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    counts = json.loads(next(x for x in ran.stderr.splitlines() if x.startswith("{")))
    assert counts["mm"] + counts.get("bmm", 0) > 50
    done = run(model, *asked, "--torch-device", "cpu")
    theirs, ours = (json.loads(x) for x in ((tmp_path / "it").read_text(), done.stdout))
    for one, two in zip(theirs["layers"], ours["layers"], strict=True):
        for kind in ("exact", "estimate"):
            assert one[kind] == pytest.approx(two[kind], abs=1e-6)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--exact",), "--exact is for --importance: add that"),
        (("--text", "x.txt"), "--text is for --importance: add that"),
        ((*FEW, "--sequences", "2"), "--sequences does not go with --importance"),
        ((*FEW, "--text", "/nowhere.txt"), "--text takes a file of UTF-8 text, or builtin"),
        (("--importance", "--max-tokens", "8"), "8 tokens are too few"),
        ((*FEW, "--torch-device", "auto"), "--torch-device auto: layers run one by one"),
        ((*FEW, "--torch-device", "cuda:9"), "torch finds no such GPU"),
    ],
)
def test_a_mistake_gets_a_message(
    save_model: SaveModel, arguments: tuple[str, ...], words: str
) -> None:
    done = run(save_model("llama"), *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_a_model_with_an_encoder_is_refused(tmp_path: Path) -> None:
    import transformers

    sizes = {"vocab_size": 64, "d_model": 16, "d_kv": 8, "d_ff": 16, "num_layers": 1}
    config = transformers.T5Config(**sizes, num_heads=2, decoder_start_token_id=0)
    transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
    done = run(tmp_path, *FEW)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "the importance of its heads cannot be told" in done.stderr


def test_spearman_against_published_and_library_values() -> None:
    """The example of https://en.wikipedia.org/wiki/Spearman's_rank_correlation_coefficient (IQ and
    hours of TV: -29/165), and one with equal values, which scipy.stats.spearmanr 1.11 gives."""
    iq = [106, 100, 86, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 27, 2, 50, 28, 29, 20, 12, 6, 17]
    assert spearman(iq, hours) == pytest.approx(-29 / 165)
    assert spearman([1, 2, 2, 3], [1, 2, 3, 4]) == pytest.approx(0.9486832980505139)
    assert spearman([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert spearman([1, 1, 1], [1, 2, 3]) is None
