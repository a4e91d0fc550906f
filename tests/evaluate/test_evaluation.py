"""The whole evaluation: the document, two models, and everything that a user can get wrong."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from headcount.evaluate.errors import EvaluationFailedError, IncomparableModelsError
from headcount.evaluate.evaluation import evaluate
from headcount.evaluate.evaluation_document import EvaluationReport
from headcount.evaluate.evaluation_request import EvaluationRequest
from headcount.model.errors import HeadcountError

pytestmark = pytest.mark.needs_convert

SaveModel = Callable[..., Path]


def _evaluate(model: Path, **options: Any) -> EvaluationReport:
    request = EvaluationRequest(
        model=str(model),
        device="cpu",
        max_tokens=90,
        **{"behaviour": "none", "roles": False, **options},
    )
    return evaluate(request, predict=lambda folder, tokens, bits: tokens * bits)


def test_the_document_of_one_model(save_model: SaveModel, text_file: Path) -> None:
    document = _evaluate(save_model("llama", tokens="bos"), text=text_file).document()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert next(iter(document)) == "schema_version"
    model = document["model"]
    assert model["tokens"] == 90
    assert model["perplexity"] == math.exp(model["loss"])
    assert model["bits_per_byte"] > 0
    assert document["against"] is document["delta_loss"] is document["kl_divergence"] is None
    assert document["cache_bytes"]["tokens"] == 48
    assert document["cache_bytes"]["predicted"] == 48 * 32
    assert document["cache_bytes"]["measured"] == 48 * 2 * 2 * 2 * 8 * 4
    assert document["speed"]["prefill_tokens_per_second"] > 0
    settings = document["settings"]
    assert (settings["window"], settings["stride"], settings["bos"]) == (48, 24, True)
    assert (settings["tokens"], settings["dtype"], settings["device"]) == (91, "float32", "cpu")


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral"])
def test_the_audit_predicts_what_the_cache_holds(save_model: SaveModel, name: str) -> None:
    request = EvaluationRequest(
        model=str(save_model(name)), device="cpu", max_tokens=128, speed=False
    )
    report = evaluate(request)
    assert report.model.cache.predicted == report.model.cache.measured
    assert report.warnings == ()


def test_a_model_without_a_cache_is_still_scored(save_model: SaveModel) -> None:
    document = _evaluate(save_model("openai-gpt")).document()
    assert document["model"]["tokens"] == 90
    assert document["cache_bytes"]["measured"] is document["speed"] is None
    few, without = document["warnings"]
    assert "only 90 tokens were scored" in few and "takes no cache" in without


def test_the_loss_is_the_mean_over_scored_tokens(
    save_model: SaveModel, build: Callable[..., Any], text_file: Path, tokenizer: Any
) -> None:
    report = _evaluate(save_model("gpt2"), text=text_file, window=20, stride=10, speed=False)
    ids = torch.tensor(tokenizer(text_file.read_text())["input_ids"][:91])
    model, losses, start = build("gpt2"), [], 0
    for token in range(1, 91):
        start += 10 if start + 20 < token else 0
        logits = model(ids[None, start:token]).logits[0, -1].double()
        losses.append(-logits.log_softmax(-1)[ids[token]].item())
    assert report.model.loss == pytest.approx(sum(losses) / 90, abs=1e-5)
    assert report.model.tokens == 90
    covered = len(tokenizer.decode(ids[1:]).encode())
    bits = sum(losses) / math.log(2) / covered
    assert report.model.bits_per_byte == pytest.approx(bits, abs=1e-5)
    assert report.document()["speed"] is None


def test_a_model_against_its_original(save_model: SaveModel, text_file: Path) -> None:
    original = save_model("llama", folder="original", seed=1, num_key_value_heads=4)
    report = _evaluate(save_model("llama"), against=str(original), text=text_file)
    assert report.against is not None
    assert report.comparison is not None
    assert report.comparison.kl_divergence > 0.1
    assert 0 <= report.comparison.top1_agreement < 1
    alone = _evaluate(original, text=text_file, speed=False)
    assert report.against.loss == alone.model.loss
    document = report.document()
    assert document["delta_loss"] == document["model"]["loss"] - document["against"]["loss"]
    cache = document["cache_bytes"]
    assert cache["against"]["measured"] == 2 * cache["measured"]
    speed = document["speed"]
    assert speed["decode_ratio"] == pytest.approx(
        speed["decode_tokens_per_second"] / speed["against"]["decode_tokens_per_second"]
    )


def test_the_same_run_gives_the_same_numbers(save_model: SaveModel) -> None:
    folder = save_model("llama")
    one, two = (_evaluate(folder, speed=False).document() for _ in range(2))
    assert one == two
    assert one["settings"]["text"] == "sample"


def test_an_original_without_a_tokenizer_takes_the_models(save_model: SaveModel) -> None:
    original = save_model("llama", folder="original", tokens="none")
    report = _evaluate(save_model("llama"), against=str(original), speed=False)
    assert report.comparison is not None
    assert report.comparison.kl_divergence == 0


def test_a_tokenizer_can_be_named(save_model: SaveModel) -> None:
    bare = save_model("llama", folder="bare", tokens="none")
    with pytest.raises(HeadcountError, match=r"bare: no tokenizer there; pass --tokenizer"):
        _evaluate(bare)
    report = _evaluate(bare, tokenizer=save_model("llama"), speed=False)
    assert report.model.tokens == 90


def test_other_tokenizers_and_vocabularies_are_not_compared(save_model: SaveModel) -> None:
    model = save_model("llama")
    other = save_model("llama", folder="other", tokens="bos")
    with pytest.raises(IncomparableModelsError, match="different tokenizers"):
        _evaluate(model, against=str(other))
    wider = save_model("llama", folder="wider", vocab_size=400)
    with pytest.raises(IncomparableModelsError, match=r"predicts 320 tokens, .*wider 400"):
        _evaluate(model, against=str(wider))


def test_a_tokenizer_that_is_too_large_is_refused(save_model: SaveModel) -> None:
    with pytest.raises(HeadcountError, match="the model has 100: this is not its tokenizer"):
        _evaluate(save_model("llama", vocab_size=100))


def test_a_window_beyond_the_positions_is_refused(save_model: SaveModel) -> None:
    with pytest.raises(HeadcountError, match=r"49 tokens: .* has 48 positions .*--window 48"):
        _evaluate(save_model("gpt2"), window=49)


def test_a_text_of_one_token_is_refused(save_model: SaveModel, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    with pytest.raises(HeadcountError, match="nothing to score"):
        _evaluate(save_model("llama"), text=tmp_path / "a.txt")


def test_damaged_weights_fail_with_exit_code_1(save_model: SaveModel) -> None:
    folder = save_model("llama")
    tensors = load_file(folder / "model.safetensors")
    tensors["model.norm.weight"][0] = float("nan")
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(EvaluationFailedError, match="is nan: its weights are damaged") as info:
        _evaluate(folder)
    assert info.value.exit_code == 1


def test_nothing_is_written_or_printed(
    save_model: SaveModel, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = save_model("llama")
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]}
    capfd.readouterr()
    _evaluate(folder)
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.iterdir()]} == before
    assert capfd.readouterr() == ("", "")


def test_a_model_that_breaks_when_it_runs_gives_no_traceback(save_model: SaveModel) -> None:
    folder = save_model("llama", num_key_value_heads=3)
    with pytest.raises(HeadcountError, match="transformers cannot run the model: "):
        _evaluate(folder)


def test_a_mistake_of_ours_is_not_blamed_on_transformers(save_model: SaveModel) -> None:
    def broken(folder: Path, tokens: int, bits: int) -> int:
        return tokens // (bits - bits)

    request = EvaluationRequest(model=str(save_model("llama")), device="cpu", max_tokens=8)
    with pytest.raises(ZeroDivisionError):
        evaluate(request, predict=broken)


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_config_that_asks_for_tuples_is_refused(save_model: SaveModel, name: str) -> None:
    folder = save_model(name)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "return_dict": False}))
    with pytest.raises(HeadcountError, match="tuple"):
        _evaluate(folder)


@pytest.mark.parametrize("options", [{"max_tokens": 0}, {"repeats": 2}])
def test_requests_that_measure_nothing_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(HeadcountError, match="at least"):
        evaluate(EvaluationRequest(model="any", **options))
