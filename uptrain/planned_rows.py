"""The rows of an uptraining, from the files that the request names."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headcount.evaluate.comparable import check_same_tokenizer, check_same_tokens
from headcount.evaluate.documents import encode_documents
from headcount.model.errors import HeadcountError
from headcount.running.boundary import third_party
from headcount.running.pairs.decoder_start import decoder_start
from headcount.running.pairs.encoded_pairs import Encoder, encoded_source
from headcount.running.pairs.pairs_file import Pair, Pairs, read_pairs
from headcount.running.runnable import RunnableModel
from headcount.running.text import Text, read_text
from headcount.running.tokens import check_ids, encode, has_vocabulary, load_tokenizer

from .own_words import OwnWords, read_lines
from .pair_rows import PairRow, digest_of, pairs_digest, part_pairs
from .rows import Rows
from .text_rows import pack_rows
from .uptrain_request import UptrainRequest

MAX_TOKENS = 2**40  # no limit: the text's own size has one
SHORT_TEXT_TOKENS = 4096  # of the first text, to compare two tokenizers with


@dataclass(frozen=True, kw_only=True, slots=True)
class ReadFile:
    """A file that rows were cut from; `sha256` is that of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRows:
    """`unknown` counts tokens that stand for what the vocabulary lacks. `digest` is that of all
    pairs, which lie in other files in part, or are said by the original; None for rows of text."""

    rows: Rows
    files: tuple[ReadFile, ...]
    unknown: int
    digest: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Models:
    """Both models, and how their rows are cut."""

    student: RunnableModel
    teacher: RunnableModel
    sequence_length: int

    def tokenizer(self, request: UptrainRequest) -> PreTrainedTokenizerBase:
        """The one that is asked for, or that of CONVERTED. Raises HeadcountError."""
        return load_tokenizer(request.tokenizer or self.student.folder)

    def compared(self, request: UptrainRequest) -> bool:
        """Whether the teacher has a tokenizer that has to be the same."""
        return request.tokenizer is None and has_vocabulary(self.teacher.folder)

    def check(self, ids: Sequence[int]) -> None:
        """Raises HeadcountError unless both models know the tokens."""
        for runnable in (self.student, self.teacher):
            check_ids(ids, runnable)


def rows_of_texts(request: UptrainRequest, models: Models) -> PlannedRows:
    """Raises HeadcountError."""
    texts = tuple(read_text(path) for path in request.texts)
    tokenizer = models.tokenizer(request)
    if models.compared(request):
        first = (texts[0], texts[:1])
        check_same_tokens(
            tokenizer,
            models.student,
            models.teacher,
            read=first,
            encoded=encode_documents(tokenizer, *first, SHORT_TEXT_TOKENS),
            max_tokens=SHORT_TEXT_TOKENS,
        )
    ids, unknown = list[Tensor](), 0
    for text in texts:
        tokens = encode(tokenizer, text, MAX_TOKENS)
        models.check(tokens.ids)
        ids.append(torch.tensor(tokens.ids))
        unknown += tokens.unknown
    rows = pack_rows(
        ids,
        sequence_length=models.sequence_length,
        held_out=request.held_out,
        end=tokenizer.eos_token_id,
    )
    return PlannedRows(rows=rows, files=_files(texts), unknown=unknown, digest=None)


def tokenizer_of_pairs(request: UptrainRequest, models: Models) -> PreTrainedTokenizerBase:
    """Raises HeadcountError, also where the models' tokenizers differ."""
    tokenizer = models.tokenizer(request)
    if models.compared(request):
        check_same_tokenizer(tokenizer, models.student, models.teacher)
    return tokenizer


def rows_of_pairs(request: UptrainRequest, models: Models, said: OwnWords | None) -> PlannedRows:
    """`said`: what the original says of each line of the texts; None: of pairs that are given.
    Raises HeadcountError."""
    reader = _PairReader(models, tokenizer_of_pairs(request, models), texts=said is not None)
    if said is None:
        files = tuple(read_pairs(path) for path in request.pairs)
        targets = [[reader.target(pair) for pair in one.pairs] for one in files]
    else:
        files = read_lines(request)
        targets = [[list(ids) for ids in one] for one in said]
    pairs = [
        [reader.row(pair, ids) for pair, ids in zip(one.pairs, own, strict=True) if ids]
        for one, own in zip(files, targets, strict=True)
    ]
    rows = part_pairs(
        pairs,
        input_name=reader.encoder.input_name,
        start=decoder_start(models.teacher),
        sequence_length=models.sequence_length,
        held_out=request.held_out,
    )
    return PlannedRows(
        rows=rows, files=_files(files), unknown=reader.unknown, digest=pairs_digest(pairs)
    )


class _PairReader:
    """Makes rows of pairs, and counts what the vocabulary lacks."""

    def __init__(self, models: Models, tokenizer: PreTrainedTokenizerBase, *, texts: bool) -> None:
        self.encoder = Encoder.unloaded(models.teacher.config)
        self.unknown = 0
        self._models, self._tokenizer = models, tokenizer
        self._option = "--text" if texts else "--pairs"

    def target(self, pair: Pair) -> list[int]:
        """What the file gives, cut."""
        with third_party(f"{self._option}: the tokenizer cannot encode a target"):
            ids = list(self._tokenizer(text_target=pair.target)["input_ids"])
        kept = ids[: self._models.sequence_length]
        self._count(kept)
        return kept

    def row(self, pair: Pair, target: list[int]) -> PairRow:
        """The pair with its encoded target. What a speech encoder reads stays in its file."""
        source, ids = self._source(pair), torch.tensor(target)
        self._models.check(target)
        if not isinstance(pair.source, Path):
            self._models.check(source[0].tolist())
            self._count(source[0].tolist())
            return PairRow(source=lambda: source, target=ids, digest=digest_of(source, ids))
        again = partial(self._unchanged, pair, digest_of(source))
        return PairRow(source=again, target=ids, digest=digest_of(source, ids))

    def _source(self, pair: Pair) -> Tensor:
        longest = self._models.sequence_length
        return encoded_source(pair, self._tokenizer, self.encoder, longest, self._option)

    def _unchanged(self, pair: Pair, digest: str) -> Tensor:
        source = self._source(pair)
        if digest_of(source) != digest:
            raise HeadcountError(f"{self._option}: {pair.source} was replaced while it was in use")
        return source

    def _count(self, ids: Sequence[int]) -> None:
        unknown = self._tokenizer.unk_token_id
        self.unknown += 0 if unknown is None else list(ids).count(unknown)


def _files(read: Sequence[Text | Pairs]) -> tuple[ReadFile, ...]:
    return tuple(ReadFile(name=one.name, sha256=one.sha256) for one in read)
