"""The model card of what `uptrain` writes: how it was trained, and whose figures it has."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from huggingface_hub import ModelCard

from headcount.cli import main
from headcount.uptrain.uptrained_card import uptrained_card

from .conftest import Pair, Uptrain, document

pytestmark = pytest.mark.needs_convert
BRIEF = ("--max-tokens", "64", "--no-speed", "--behaviour", "none", "--no-roles", "--card")


def card(folder: Path) -> str:
    return str(ModelCard.load(folder / "README.md").content)


def figures(text: str) -> dict[str, list[str]]:
    cells = [row.split("|") for row in re.findall(r"^\|(.*)\|$", text, flags=re.M)]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}


def evaluated(pair: Pair, folder: Path) -> Pair:
    """The same pair, with an evaluation in a copy of the converted model's card."""
    shutil.copytree(pair.converted, folder)
    measure(pair, folder)
    return Pair(pair.original, folder)


def measure(pair: Pair, folder: Path) -> None:
    words = ["evaluate", str(folder), "--against", str(pair.original), *BRIEF]
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.stderr


def test_it_says_how_the_model_was_trained_as_the_record_has_it(
    uptrain: Uptrain, pair: Pair, prose: Path, tmp_path: Path
) -> None:
    found = document(uptrain(pair))
    before, _, told = card(tmp_path / "out").partition("## Uptraining")
    assert before.rstrip() == card(pair.converted).partition("<!-- evaluation -->")[0].rstrip()
    assert "Not evaluated." in card(pair.converted) and "Not evaluated" not in before
    assert "Not evaluated since the uptraining." in told
    assert (
        "12 steps of 4 rows of 32 tokens, 1,536 tokens in all, at a learning rate of 0.003" in told
    )
    assert f"Teacher: {pair.original.name}, which this model was made from." in told
    assert f"Text: SHA-256 {hashlib.sha256(prose.read_bytes()).hexdigest()[:16]}." in told
    held = found["held_out"]
    assert f"On {held['tokens']:,} tokens in {held['rows']} rows that were not trained on" in told
    scores = (found["before"], found["after"])
    rows = figures(told)
    assert rows[""] == ["before", "after", "the teacher"]
    losses = [*(one["loss"] for one in scores), found["teacher_scores"]["loss"]]
    assert rows["Loss, nats a token"] == [f"{loss:.4f}" for loss in losses]
    kl = [f"{one['kl_divergence']:.4f}" for one in scores]
    assert rows["KL divergence, nats a token"] == [*kl, ""] and kl[0] != kl[1]
    agreed = [f"{one['top1_agreement']:.1%}" for one in scores]
    assert rows["Top-1 agreement"] == [*agreed, ""]
    assert str(tmp_path) not in told and prose.name not in told


def test_an_evaluation_is_said_to_be_of_the_model_before(
    uptrain: Uptrain, pair: Pair, tmp_path: Path
) -> None:
    measured = evaluated(pair, tmp_path / "measured")
    old = figures(card(measured.converted))
    assert old[""] == ["this model", "the original"]
    document(uptrain(measured))
    out = tmp_path / "out"
    earlier = card(out).partition("## Uptraining")[0]
    assert figures(earlier) == {**old, "": ["before uptraining", "the original"]}
    assert "## Evaluation before uptraining" in earlier
    assert "this model |" not in card(out)
    assert "Not evaluated since the uptraining." in card(out)

    measure(pair, out)
    earlier, _, later = card(out).partition("## Uptraining")
    assert figures(earlier) == {**old, "": ["before uptraining", "the original"]}
    own = figures(later.partition("## Evaluation\n")[2])
    assert own[""] == ["this model", "the original"]
    assert own["KL divergence, nats a token"] != old["KL divergence, nats a token"]
    measure(pair, out)
    assert card(out).count("## Evaluation\n") == 1
    assert "Not evaluated" not in card(out)


def test_training_on_tells_of_both(uptrain: Uptrain, pair: Pair, tmp_path: Path) -> None:
    first = document(uptrain(pair, target="once"))
    second = document(uptrain(Pair(pair.original, tmp_path / "once"), target="twice"))
    _, once, twice = card(tmp_path / "twice").split("## Uptraining")
    assert card(tmp_path / "twice").count("Not evaluated") == 1
    for told, found in ((once, first), (twice, second)):
        kl = [f"{found[when]['kl_divergence']:.4f}" for when in ("before", "after")]
        assert figures(told)["KL divergence, nats a token"] == [*kl, ""]


@pytest.mark.parametrize("own", [None, b"\xff not UTF-8\r\n"])
def test_a_card_of_anybody_keeps_its_bytes(
    uptrain: Uptrain, pair: Pair, tmp_path: Path, own: bytes | None
) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(pair.converted, folder)
    (folder / "README.md").unlink()
    if own is not None:
        (folder / "README.md").write_bytes(own)
    document(uptrain(Pair(pair.original, folder)))
    made = tmp_path / "out" / "README.md"
    assert made.exists() == (own is not None)
    if own is not None:
        assert made.read_bytes().startswith(own.rstrip() + b"\n\n## Uptraining\n")


def recorded(**other: Any) -> dict[str, Any]:
    scores = {"loss": 2.0, "teacher_loss": 1.0, "kl_divergence": 0.5, "top1_agreement": 0.25}
    return {
        "teacher": {"fingerprint": "sha256:abc"},
        "texts": [{"sha256": "1" * 64}],
        "settings": {"batch_size": 8, "sequence_length": 64, "learning_rate": 1e-3},
        "steps": 1,
        "tokens": 512,
        "held_out": {"rows": 2, "tokens": 128},
        "before": {**scores, "tokens": 128},
        "after": {**scores, "tokens": 128},
        **other,
    }


@pytest.mark.parametrize("source", [{}, {"source": {"name": "x", "fingerprint": "sha256:other"}}])
def test_another_teacher_is_named_by_its_fingerprint(source: dict[str, Any]) -> None:
    told = uptrained_card("# x\n", source, recorded())
    assert "Teacher: a model whose config and headers have the fingerprint sha256:abc." in told
    assert "1 step of 8 rows of 64 tokens" in told


def test_pairs_are_called_pairs() -> None:
    files = [{"sha256": "1" * 64}, {"sha256": "2" * 64}]
    pairs = recorded(pairs=files, targets="as given", sha256="3" * 64)
    told = uptrained_card("# x\n", {}, pairs)
    assert "--pairs PAIRS --card" in told
    assert f"- Pairs: SHA-256 {'1' * 16}, {'2' * 16}.\n" in told
    assert "8 pairs of at most 64 tokens" in told and "in 2 pairs that" in told
    said = recorded(texts=files, targets="said by the teacher", sha256="3" * 64)
    told = uptrained_card("# x\n", {}, said)
    assert f"- Texts: SHA-256 {'1' * 16}, {'2' * 16}, whose targets the teacher said.\n" in told


def test_its_digest_is_in_the_record(uptrain: Uptrain, pair: Pair, tmp_path: Path) -> None:
    document(uptrain(pair))
    manifest = json.loads((tmp_path / "out" / "conversion.json").read_text())["manifest"]
    assert manifest["README.md"]["bytes"] == (tmp_path / "out" / "README.md").stat().st_size
    assert document(uptrain(pair))["done_before"]
