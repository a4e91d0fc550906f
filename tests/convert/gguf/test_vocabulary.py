"""Vocabularies as llama.cpp reads them."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.needs_convert
gguf = pytest.importorskip("gguf")

from tokenizers import (  # noqa: E402  # noqa: E402
    AddedToken,
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import PreTrainedTokenizerFast  # noqa: E402

from causal_models import make_tokenizer  # noqa: E402
from headcount.convert.gguf.pre_tokenizers import pre_tokenizer_name  # noqa: E402
from headcount.convert.gguf.sentencepiece_scores import scores_of  # noqa: E402
from headcount.convert.gguf.vocabulary import vocabulary_of  # noqa: E402
from headcount.convert.plan.errors import CannotConvertError  # noqa: E402

TEXT = (
    "It's 12345 o'clock; she said \"never\", and WENT\n\n  home... (again?) — ça va, naïve café? "
)
GPT2, DIGITS = pre_tokenizers.ByteLevel(add_prefix_space=False), pre_tokenizers.Digits
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _sequence(*parts: Any) -> Any:
    return pre_tokenizers.Sequence(list(parts))


def _split(regex: str) -> Any:
    from tokenizers import Regex

    return _sequence(
        pre_tokenizers.Split(Regex(regex), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
    )


def _spec(pre: Any) -> dict[str, Any]:
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre
    spec: dict[str, Any] = json.loads(inner.to_str())["pre_tokenizer"]
    return spec


@pytest.mark.parametrize(
    ("pre", "ignores_merges", "name"),
    [
        (GPT2, False, "gpt-2"),
        (GPT2, True, None),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), False, None),
        (_sequence(DIGITS(individual_digits=True), GPT2), False, "starcoder"),
        (_sequence(DIGITS(individual_digits=False), GPT2), False, None),
        (_split(LLAMA3), True, "llama-bpe"),
        (_split(LLAMA3), False, "dbrx"),
        (_split(LLAMA3.replace("{1,3}", "")), False, "qwen2"),
        (_split(r"\w+|\W+"), False, None),
        (pre_tokenizers.Whitespace(), False, None),
    ],
)
def test_names_of_pre_tokenizers(pre: Any, ignores_merges: bool, name: str | None) -> None:
    assert pre_tokenizer_name(_spec(pre), ignores_merges=ignores_merges) == name


def _keys(folder: Path, rows: int) -> dict[str, Any]:
    return {one.key: one.value for one in vocabulary_of(folder, rows).keys}


def test_bytes_that_are_merged(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(bos=True)
    tokenizer.save_pretrained(tmp_path)
    rows = len(tokenizer) + 3
    keys = _keys(tmp_path, rows)
    assert (keys["tokenizer.ggml.model"], keys["tokenizer.ggml.pre"]) == ("gpt2", "gpt-2")
    assert keys["tokenizer.ggml.tokens"][: len(tokenizer)] == tokenizer.convert_ids_to_tokens(
        range(len(tokenizer))
    )
    assert keys["tokenizer.ggml.tokens"][-1] == f"[PAD{rows - 1}]"
    kinds = keys["tokenizer.ggml.token_type"]
    assert kinds[tokenizer.bos_token_id] == gguf.TokenType.CONTROL
    assert kinds[-3:] == [gguf.TokenType.UNUSED] * 3
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    assert keys["tokenizer.ggml.merges"] == [" ".join(pair) for pair in merges]
    assert keys["tokenizer.ggml.bos_token_id"] == tokenizer.bos_token_id
    assert keys["tokenizer.ggml.add_bos_token"] is True
    assert keys["tokenizer.ggml.add_eos_token"] is False


def _spm(folder: Path) -> Any:
    """A tokenizer of SentencePiece's kind, trained on the text above."""
    inner = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    inner.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=360, special_tokens=special, show_progress=False)
    inner.train_from_iterator([TEXT] * 4, trainer)
    spec = json.loads(inner.to_str())
    spec["model"]["merges"] = _as_sentencepiece_has_them(spec["model"])
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["id"] < 3]
    inner = Tokenizer.from_str(json.dumps(spec))
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


def _as_sentencepiece_has_them(model: dict[str, Any]) -> list[list[str]]:
    """All pairs that make each token, in the order of the tokens."""
    made = ["".join(pair) for pair in model["merges"]]
    pieces = {*made, *(token for token in model["vocab"] if len(token) == 1)}
    return [
        [token[:i], token[i:]]
        for token in dict.fromkeys(made)
        for i in range(1, len(token))
        if token[:i] in pieces and token[i:] in pieces
    ]


def _merged_by_scores(text: str, tokens: list[str], scores: list[float]) -> list[int]:
    """As llama.cpp's "llama" cuts a text: of all neighbours that make a token, those of the highest
    score first, and of these the leftmost."""
    known = {token: index for index, token in enumerate(tokens)}
    parts = list("\u2581" + text.replace(" ", "\u2581"))
    while True:
        found = [
            (-scores[known[a + b]], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in known
        ]
        if not found:
            break
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    ids: list[int] = []
    for part in parts:
        bytes_ = [known[f"<0x{byte:02X}>"] for byte in part.encode()]
        ids += [known[part]] if part in known else bytes_
    return ids


def test_scores_cut_texts_as_merges_do(tmp_path: Path) -> None:
    tokenizer = _spm(tmp_path)
    keys = _keys(tmp_path, 400)
    assert keys["tokenizer.ggml.model"] == "llama"
    assert keys["tokenizer.ggml.add_space_prefix"] is True
    assert keys["tokenizer.ggml.token_type"][:4] == [2, 3, 3, 6]
    for text in (TEXT, "hello", "went home again", "日本"):
        wanted = tokenizer(text, add_special_tokens=False)["input_ids"]
        tokens, scores = keys["tokenizer.ggml.tokens"], keys["tokenizer.ggml.scores"]
        assert _merged_by_scores(text, tokens, scores) == wanted


def test_lists_that_are_no_scores() -> None:
    vocabulary = {name: i for i, name in enumerate(["a", "b", "c", "ab", "bc", "abc"])}
    assert scores_of(vocabulary, [("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")]) is not None
    lacking = [("a", "b"), ("b", "c"), ("ab", "c")]  # a + bc
    assert scores_of(vocabulary, lacking) is None
    apart = [("a", "b"), ("ab", "c"), ("b", "c"), ("a", "bc")]
    assert scores_of(vocabulary, apart) is None


@pytest.mark.parametrize("kind", ["wordpiece", "lowercase", "whitespace"])
def test_tokenizers_that_llama_cpp_has_not(tmp_path: Path, kind: str) -> None:
    inner = make_tokenizer(bos=True).backend_tokenizer
    if kind == "wordpiece":
        inner = Tokenizer(models.WordPiece({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))
    elif kind == "lowercase":
        inner.normalizer = normalizers.Lowercase()
    else:
        inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=inner).save_pretrained(tmp_path)
    with pytest.raises(CannotConvertError, match="then has no vocabulary"):
        vocabulary_of(tmp_path, 400)


def test_more_tokens_than_rows(tmp_path: Path) -> None:
    tokenizer = make_tokenizer(bos=True)
    tokenizer.add_tokens([AddedToken("<more>")])
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(CannotConvertError, match="its embedding 8 rows"):
        vocabulary_of(tmp_path, 8)


def test_no_tokenizer(tmp_path: Path) -> None:
    assert _keys(tmp_path, 8) == {"tokenizer.ggml.model": "none"}
