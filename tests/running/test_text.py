"""The text and its tokens: encodings, BOS, what is scored, what is refused."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from headcount.model.errors import HeadcountError
from headcount.running.text import Text, read_text
from headcount.running.tokens import encode, load_tokenizer

pytestmark = pytest.mark.needs_convert


def _text(content: str) -> Text:
    return Text(name="t", content=content, sha256="")


def test_the_sample_is_prose_of_the_promised_size() -> None:
    sample = read_text(None)
    assert sample.name == "sample"
    assert 60_000 <= len(sample.content.encode()) <= 100_000
    assert sample.content.startswith("CHAPTER I\n")
    assert "gutenberg" not in sample.content.lower()


def test_a_byte_order_mark_is_not_text_but_counts_in_the_hash(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfab\r\n")
    text = read_text(path)
    assert text.content == "ab\r\n"
    assert text.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize(
    ("data", "message"),
    [(b"caf\xe9", r"not UTF-8 \(byte 3\)"), (b"", "no text"), (b" \n\t", "no text")],
)
def test_no_text_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    with pytest.raises(HeadcountError, match=message):
        read_text(path)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match="no such file"):
        read_text(tmp_path / "none.txt")
    with pytest.raises(HeadcountError, match="not a regular file"):
        read_text(tmp_path)


def test_bos_stands_first_only_where_the_tokenizer_puts_it(
    tokenizer: Any, bos_tokenizer: Any
) -> None:
    text = _text("Alice was beginning")
    plain, with_bos = encode(tokenizer, text, 100), encode(bos_tokenizer, text, 100)
    assert not plain.bos
    assert with_bos.bos
    assert with_bos.ids == (bos_tokenizer.bos_token_id, *plain.ids)
    assert with_bos.scored == len(plain.ids) == plain.scored + 1


def test_at_most_max_tokens_are_scored(tokenizer: Any, bos_tokenizer: Any) -> None:
    text = _text("Alice was beginning to get very tired")
    assert encode(tokenizer, text, 5).scored == 5
    assert encode(bos_tokenizer, text, 5).scored == 5
    assert encode(tokenizer, text, 5).ids[:5] == encode(bos_tokenizer, text, 5).ids[1:]


def test_bytes_are_those_of_the_scored_tokens(tokenizer: Any, bos_tokenizer: Any) -> None:
    content = "Zoë sat — alone."
    assert encode(bos_tokenizer, _text(content), 100).nbytes == len(content.encode())
    first = tokenizer.decode(encode(tokenizer, _text(content), 100).ids[:1])
    expected = len(content.encode()) - len(first.encode())
    assert encode(tokenizer, _text(content), 100).nbytes == expected
    cut = encode(tokenizer, _text("Alice was tired"), 3)
    assert cut.nbytes == len(tokenizer.decode(cut.ids[1:]).encode())


def test_one_token_is_enough_only_after_bos(tokenizer: Any, bos_tokenizer: Any) -> None:
    with pytest.raises(HeadcountError, match=r"1 token.*nothing to score.*longer text"):
        encode(tokenizer, _text("a"), 100)
    assert encode(bos_tokenizer, _text("a"), 100).scored == 1


def test_unknown_tokens_are_counted(tokenizer: Any) -> None:
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE({"?": 0, "a": 1, "b": 2}, [], unk_token="?"))
    words = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="?")
    assert encode(words, _text("abcadb"), 100).unknown == 2
    assert encode(tokenizer, _text("abcadb"), 100).unknown == 0


def test_a_folder_without_a_tokenizer_says_what_to_pass(tmp_path: Path) -> None:
    with pytest.raises(HeadcountError, match=r"no tokenizer there; pass --tokenizer FOLDER"):
        load_tokenizer(tmp_path)


def test_a_tokenizer_with_code_of_its_own_is_refused(tmp_path: Path, tokenizer: Any) -> None:
    tokenizer.save_pretrained(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(
        '{"auto_map": {"AutoTokenizer": ["x.X", null]}}'
    )
    with pytest.raises(HeadcountError, match="auto_map asks for code"):
        load_tokenizer(tmp_path)
