"""Lines and files as sequences of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from headcount.evaluate.documents import encode_documents, read_documents
from headcount.evaluate.evaluation import evaluate
from headcount.evaluate.evaluation_request import EvaluationRequest
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert
SaveModel = Callable[..., Path]
LINES = ["The first of them.", "", "Another one, which is longer by some.", "x", "And the last."]


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(LINES), encoding="utf-8")
    return path


@torch.no_grad()
def _mean_loss(folder: Path, texts: list[str], *, bos: bool) -> float:
    """Each text by itself in one go, by transformers alone."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    losses: list[float] = []
    for text in texts:
        ids = torch.tensor([tokenizer(text, add_special_tokens=bos)["input_ids"]])
        scores = model(ids).logits[0, :-1].log_softmax(-1)
        losses += (-scores.gather(-1, ids[0, 1:, None])[:, 0]).tolist()
    return sum(losses) / len(losses)


@pytest.mark.parametrize("tokens", ["plain", "bos"])
@pytest.mark.parametrize("form", ["lines", "folder"])
def test_each_is_scored_by_itself(
    save_model: SaveModel, lines: Path, tmp_path: Path, tokens: str, form: str
) -> None:
    """A line of one token has nothing to score without a BOS; an empty one is none."""
    folder, texts = save_model("llama", tokens=tokens), [line for line in LINES if line]
    if form == "folder":
        lines = tmp_path / "texts"
        lines.mkdir()
        for number, text in enumerate(texts):
            (lines / f"{number}.txt").write_text(text, encoding="utf-8")
    options: dict[str, Any] = {"text": lines, "documents": True, "device": "cpu"}
    request = EvaluationRequest(model=str(folder), speed=False, behaviour="none", **options)
    report = evaluate(request, predict=lambda *_: 0)
    expected = _mean_loss(folder, texts, bos=tokens == "bos")
    assert report.model.loss == pytest.approx(expected, abs=1e-4)
    assert report.settings.documents == (4 if tokens == "bos" else 3)
    assert report.settings.tokens == report.model.tokens + report.settings.documents


def test_windows_never_reach_into_the_next_document(lines: Path, tokenizer: Any) -> None:
    encoded = encode_documents(tokenizer, *read_documents(lines, documents=True), 1000)
    starts = [sum(encoded.lengths[:n]) for n in range(len(encoded.lengths) + 1)]
    windows = encoded.windows(5, 3)
    for window in windows:
        own = [start for start in starts if start <= window.start][-1]
        stop = starts[starts.index(own) + 1]
        assert own <= window.start < window.stop < stop and own < window.first
    scored = sum(window.stop + 1 - window.first for window in windows)
    assert scored == sum(encoded.lengths) - len(encoded.lengths)


def test_max_tokens_holds_over_all(lines: Path, tokenizer: Any) -> None:
    encoded = encode_documents(tokenizer, *read_documents(lines, documents=True), 9)
    whole = encode_documents(tokenizer, *read_documents(lines, documents=True), 1000)
    scored = [sum(one.lengths) - len(one.lengths) for one in (encoded, whole)]
    assert scored[0] == 9 < scored[1]
    assert whole.tokens.ids[: encoded.lengths[0]] == encoded.tokens.ids[: encoded.lengths[0]]


def test_a_folder_wants_the_flag_and_files(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="--documents"):
        read_documents(tmp_path, documents=False)
    with pytest.raises(HeadcountError, match="holds no files"):
        read_documents(tmp_path, documents=True)


def test_nothing_to_score_is_an_error(tmp_path: Path, tokenizer: Any) -> None:
    path = tmp_path / "letters.txt"
    path.write_text("x\ny\n", encoding="utf-8")
    with pytest.raises(HeadcountError, match="no document has two tokens"):
        encode_documents(tokenizer, *read_documents(path, documents=True), 10)
