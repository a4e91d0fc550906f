"""What calibration rows begin with, by tokenizers that are made here."""

from typing import Any

import pytest
import torch

pytestmark = pytest.mark.needs_convert

ROWS, WIDTH = 64, 8
SPECIAL = {"<s>": 0, "</s>": 1, "<tool>": 2}
WORDS = {f"w{i}": i for i in range(3, 40)}


def tokenizer(*, special: bool = True, bos: bool = False) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({**SPECIAL, **WORDS}, unk_token="w3"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    if bos:
        inner.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    names: dict[str, Any] = {"bos_token": "<s>", "eos_token": "</s>"} if special else {}
    if special:
        names["additional_special_tokens"] = ["<tool>"]
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names)


def text() -> Any:
    from headcount.convert.calibrate.calibration_text import CalibrationText

    ids = torch.full((ROWS, WIDTH), 99)
    batches = tuple(slice(i, i + 8) for i in range(0, ROWS, 8))
    return CalibrationText(ids=ids, batches=batches, held=batches[:1], sha256="", found=ROWS)


def firsts(tokenizer: Any, *, vocabulary: int = 40, seed: int = 0) -> list[int]:
    from headcount.convert.calibrate.first_tokens import with_first_tokens

    before = text()
    after = with_first_tokens(before, tokenizer, vocabulary=vocabulary, seed=seed)
    assert (before.ids == 99).all()
    assert (after.ids[:, 1:] == 99).all()
    assert (after.ids[1::2, 0] == 99).all()
    assert (after.batches, after.held) == (before.batches, before.held)
    found: list[int] = after.ids[::2, 0].tolist()
    return found


def test_special_and_ordinary_tokens_by_turns() -> None:
    found = firsts(tokenizer())
    assert set(found[::2]) == {0, 1, 2}
    assert set(found[1::2]) <= set(WORDS.values())
    assert len(set(found[1::2])) > 8
    assert found == firsts(tokenizer())
    assert found != firsts(tokenizer(), seed=1)


def test_bos_is_the_special_one_where_texts_begin_with_it() -> None:
    found = firsts(tokenizer(bos=True))
    assert set(found[::2]) == {0}
    assert 0 not in found[1::2]


def test_without_special_tokens_all_are_ordinary() -> None:
    assert len(set(firsts(tokenizer(special=False)))) > 12


def test_none_is_beyond_the_models_vocabulary() -> None:
    found = firsts(tokenizer(), vocabulary=10)
    assert max(found) < 10


def test_every_batch_has_some() -> None:
    """Also those that are held out, by which each step is judged."""
    from headcount.convert.calibrate.first_tokens import with_first_tokens

    after = with_first_tokens(text(), tokenizer(), vocabulary=40, seed=0)
    for batch in after.batches:
        assert (after.ids[batch, 0] == 99).sum() == 4
