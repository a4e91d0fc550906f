"""A text as documents: no window reaches from one into the next."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from transformers import PreTrainedTokenizerBase

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.running.text import Text, read_text
from headcount.running.tokens import TokenSequence, begins_with_bos, encode

from .windows import Window, cut_windows


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedText:
    """`tokens` of all documents in a row; `lengths` are how many each has, with its BOS."""

    tokens: TokenSequence
    lengths: tuple[int, ...]

    def windows(self, window: int, stride: int) -> tuple[Window, ...]:
        """Of every document by itself, see `cut_windows`."""
        found: list[Window] = []
        start = 0
        for length in self.lengths:
            found += (
                Window(start=start + one.start, stop=start + one.stop, first=start + one.first)
                for one in cut_windows(length, window=window, stride=stride)
            )
            start += length
        return tuple(found)


def read_documents(path: Path | None, *, documents: bool) -> tuple[Text, tuple[Text, ...]]:
    """The whole, for its name and digest, and its parts: without `documents` the text is one; else
    each line with any words is one, or each file of a folder, by name. Raises HeadcountError."""
    if path is not None and path.is_dir():
        if not documents:
            raise HeadcountError(f"{path}: a folder; pass --documents to read each file in it")
        return _folder(path)
    text = read_text(path)
    if not documents:
        return text, (text,)
    lines = [line for line in text.content.splitlines() if line.strip()]
    return text, tuple(replace(text, content=line) for line in lines)


def _folder(path: Path) -> tuple[Text, tuple[Text, ...]]:
    files = sorted(file for file in path.iterdir() if file.is_file())
    size = sum(file.stat().st_size for file in files)
    if size > limits.TEXT_BYTES.most:
        raise HeadcountError(limits.TEXT_BYTES.refusal(path, size))
    texts = tuple(read_text(file) for file in files)
    if not texts:
        raise HeadcountError(f"{path}: holds no files")
    digest = hashlib.sha256("".join(text.sha256 for text in texts).encode()).hexdigest()
    return Text(name=str(path), content="", sha256=digest), texts


def encode_documents(
    tokenizer: PreTrainedTokenizerBase, whole: Text, texts: Sequence[Text], max_tokens: int
) -> EncodedText:
    """`texts` as tokens, each as `encode` does it, until `max_tokens` are scored. One that has a
    single token has nothing to score and is left out. Raises HeadcountError if none is left."""
    if len(texts) == 1:
        tokens = encode(tokenizer, texts[0], max_tokens)
        return EncodedText(tokens=tokens, lengths=(len(tokens.ids),))
    parts = list(_encoded(tokenizer, texts, max_tokens))
    if not parts:
        raise HeadcountError(f"{whole.name}: no document has two tokens: nothing to score")
    sizes = [part.nbytes for part in parts if part.nbytes is not None]
    tokens = TokenSequence(
        ids=tuple(token for part in parts for token in part.ids),
        bos=parts[0].bos,
        nbytes=sum(sizes) if len(sizes) == len(parts) else None,
        unknown=sum(part.unknown for part in parts),
    )
    return EncodedText(tokens=tokens, lengths=tuple(len(part.ids) for part in parts))


def _encoded(
    tokenizer: PreTrainedTokenizerBase, texts: Sequence[Text], max_tokens: int
) -> Iterator[TokenSequence]:
    least = 1 if begins_with_bos(tokenizer) else 2
    left = max_tokens
    for text in texts:
        if left < 1:
            return
        if len(tokenizer(text.content, add_special_tokens=False)["input_ids"]) >= least:
            part = encode(tokenizer, text, left)
            left -= part.scored
            yield part
