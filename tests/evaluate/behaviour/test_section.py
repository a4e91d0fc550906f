"""The section of behaviour in the reports of `evaluate`."""

import csv
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from headcount.cli import main
from headcount.evaluate.text_warnings import unigram_entropy
from planted_heads import CODES, plant

pytestmark = pytest.mark.needs_convert
SHORT = ["--max-tokens", "200", "--no-speed", "--no-roles", "--torch-device", "cpu"]
OUTPUT = "model.layers.1.self_attn.o_proj"


@pytest.fixture
def copying(tmp_path: Path) -> tuple[Path, Path, Path]:
    """Folders of a Llama of two heads that copies, and of the same whose induction head writes
    nothing, and a text in their 32 words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{number}": number for number in range(CODES)}
    inner = Tokenizer(models.WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="w0")
    folders = []
    for name, loud in (("original", 40), ("broken", 0)):
        model = plant("llama", alone=True).model
        with torch.no_grad():
            model.get_submodule(OUTPUT).weight.mul_(loud)
        folders.append(tmp_path / name)
        model.save_pretrained(folders[-1])
        tokenizer.save_pretrained(folders[-1])
    picks = torch.randint(1, CODES, (201,), generator=torch.Generator().manual_seed(4)).tolist()
    text = tmp_path / "words.txt"
    text.write_text(" ".join(f"w{pick}" for pick in picks), encoding="utf-8")
    return folders[1], folders[0], text


def _run(*arguments: object) -> Any:
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments), *SHORT, "--details"])


def test_a_conversion_that_no_longer_copies_is_called_so(copying: tuple[Path, Path, Path]) -> None:
    broken, original, text = copying
    result = _run(broken, "--against", original, "--text", text)
    assert result.exit_code == 0, result.stderr
    assert "destroyed: what stood in the context" in result.stdout
    assert "destroyed copying of random tokens" in result.stderr
    brief = CliRunner().invoke(
        main, ["evaluate", *map(str, (broken, "--against", original, "--text", text)), *SHORT]
    )
    assert "Verdict: KL " in brief.stdout.splitlines()[-1]
    assert "copying from the context destroyed" in brief.stdout.splitlines()[-1]
    assert len(brief.stdout.splitlines()) < len(result.stdout.splitlines()) / 2
    same = _run(original, "--against", original, "--text", text)
    assert "destroyed" not in same.stdout + same.stderr


def test_json_has_every_part_of_both(copying: tuple[Path, Path, Path]) -> None:
    broken, original, text = copying
    found = _run(broken, "--against", original, "--text", text, "--format", "json")
    part = json.loads(found.stdout)["behaviour"]
    assert (part["size"], part["verdict"]) == ("brief", "destroyed")
    induction = part["induction"]
    assert induction["verdict"] == "destroyed" and induction["kept"] < 0.25
    assert induction["against"]["second_accuracy"] > 0.9
    assert induction["model"]["second_accuracy"] < 0.1
    assert (induction["sequences"], induction["tokens"]) == (16, 31)
    assert [one["distance"] for one in part["recall"]] == [8, 63]
    recalled = part["recall"][0]  # of so few words, keys stand in the text as well
    assert recalled["against"]["accuracy"] > 0.4 > 0.2 > recalled["model"]["accuracy"]
    assert part["in_context"]["scaled"] is True
    assert part["loss_by_position"][0] == {
        **part["loss_by_position"][0],
        "first": 1,
        "last": 1,
        "tokens": part["windows"]["count"],
    }
    assert [one["share"] for one in part["windows"]["quantiles"]] == [0, 0.1, 0.5, 0.9, 1]
    assert len(part["windows"]["worst"]) == 3
    assert len(part["first_tokens"]) == 24
    assert {one["text"] for one in part["first_tokens"]} <= {f"w{number}" for number in range(32)}
    assert len(part["generations"]) == 3
    assert part["not_measured"] == {}
    assert part["cost"]["tokens"] > 0


def test_one_model_has_no_columns_of_another(copying: tuple[Path, Path, Path]) -> None:
    _, original, text = copying
    table = _run(original, "--text", text)
    assert "Copying and recall" in table.stdout and "Original" not in table.stdout
    part = json.loads(_run(original, "--text", text, "--format", "json").stdout)["behaviour"]
    assert part["verdict"] is part["induction"]["against"] is part["induction"]["kept"] is None


def test_csv_and_html_have_it(copying: tuple[Path, Path, Path], tmp_path: Path) -> None:
    broken, original, text = copying
    both = (broken, "--against", original, "--text", text)
    rows = list(csv.DictReader(io.StringIO(_run(*both, "--format", "csv").stdout)))
    assert [float(row["induction_accuracy"]) > 0.5 for row in rows] == [False, True]
    assert all(float(row["recall_accuracy"]) <= 1 for row in rows)
    page = tmp_path / "page.html"
    assert _run(*both, "-o", page).exit_code == 0
    written = page.read_text(encoding="utf-8")
    assert "Loss by position" in written and "Recall of a planted pair" in written


def test_none_leaves_it_out(copying: tuple[Path, Path, Path]) -> None:
    _, original, text = copying
    found = _run(original, "--text", text, "--behaviour", "none", "--format", "json")
    assert json.loads(found.stdout)["behaviour"] is None


def test_windows_that_begin_with_bos_have_no_other_first_token(
    save_model: Callable[..., Path],
) -> None:
    found = _run(save_model("llama", tokens="bos"), "--format", "json")
    part = json.loads(found.stdout)["behaviour"]
    assert part["first_tokens"] == []
    assert part["not_measured"] == {"first_tokens": "every window begins with BOS"}
    assert all(one["prompt"].startswith("<s>") for one in part["generations"])


def test_a_text_that_does_not_suit_the_original_is_warned_of(
    save_model: Callable[..., Path],
) -> None:
    """A random model is worse than the frequencies of the tokens; of few tokens nobody says so."""
    folder = save_model("llama")
    options = [str(folder), "--no-speed", "--behaviour", "none", "--window", "16"]
    many = CliRunner().invoke(main, ["evaluate", *options, "--max-tokens", "1200"])
    assert "the frequencies of the tokens alone give" in many.stderr
    assert "KL divergence" in many.stderr
    few = CliRunner().invoke(main, ["evaluate", *options, "--max-tokens", "900"])
    assert few.stderr == ""


def test_the_entropy_of_frequencies_is_that_of_a_fair_die() -> None:
    assert unigram_entropy([1, 2, 3, 4] * 1000) == pytest.approx(math.log(4) + 3 / 8000)
    assert unigram_entropy([7] * 50) == 0
