"""The pairs that an encoder-decoder is fitted to: a pair is a batch, so that nothing is padded."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from headcount.model.decoder_attentions import attentions
from headcount.model.errors import HeadcountError
from headcount.running.boundary import quiet_transformers
from headcount.running.load import load_model
from headcount.running.pairs.decoder_start import decoder_start
from headcount.running.pairs.encoded_pairs import Encoder, encoded_pairs, encoded_source
from headcount.running.pairs.pairs_file import Pair, Pairs, pairs_of_lines, read_pairs
from headcount.running.placement import Placement
from headcount.running.runnable import RunnableModel, open_runnable
from headcount.running.tokens import check_ids, has_vocabulary, load_tokenizer
from headcount.sources.identity import FileIdentity

from ...plan.request import CALIBRATION_ROW_TOKENS
from ...plan.source import ConversionSource
from ..calibration_rows import HELD_OUT, LEAST_BATCHES, CalibrationRows
from ..calibration_text import named_text
from ..placed import CPU

_OPTION = "--calibration"
# Lengths are cut to multiples of the second number from the first on: what layers are given beside
# hidden states is kept for each length.
_STEPS = ((256, 64), (64, 16), (16, 4), (0, 1))


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationPairs(CalibrationRows):
    """`given` is what the decoder reads of each pair, [1, T]; `source` gives by its number what the
    encoder reads, [1, S] or, of speech, [1, features, frames]."""

    given: tuple[Tensor, ...]
    source: Callable[[int], Tensor]

    @property
    def tokens(self) -> int:
        return sum(ids.numel() for ids in self.given)

    @property
    def row_tokens(self) -> int:
        """Tokens of the longest target."""
        return max(ids.shape[1] for ids in self.given)


def calibration_pairs(
    source: ConversionSource,
    runnable: RunnableModel,
    name: str,
    tokens: int,
    seed: int,
    *,
    row_tokens: int | None = None,
    device: torch.device = CPU,
) -> CalibrationPairs:
    """At most `tokens` tokens of the targets in the file of pairs `name`, of each pair at most
    `row_tokens` (None: CALIBRATION_ROW_TOKENS). Of a text, or `builtin`, each line is a source, and
    what the model says itself the target: it is on `device` as a whole then. Raises HeadcountError
    for one that holds none, or too few."""
    read = _pairs(name)
    if not has_vocabulary(source.real[0]):
        raise HeadcountError(
            f"{source.folder}: no tokenizer there, so that pairs cannot be cut into tokens: put the"
            " model's tokenizer files beside its weights"
        )
    tokenizer = load_tokenizer(source.real[0])
    order = torch.randperm(len(read.pairs), generator=torch.Generator().manual_seed(seed))
    pairs = [read.pairs[number] for number in order.tolist()]
    longest = row_tokens or CALIBRATION_ROW_TOKENS
    limit = min(longest, runnable.max_position_embeddings or longest)
    encode, start = _sources(tokenizer, runnable, limit), decoder_start(runnable)
    targets = (_target(pair, tokenizer, runnable) for pair in pairs)
    if pairs[0].target is None:
        said = _said(str(runnable.folder), runnable.files, tuple(pairs), tokens, limit, device)
        targets = (list(ids) for ids in said)
    given, left = list[Tensor](), tokens
    for ids in targets:
        if left <= 0:
            break
        kept = ids[: few_lengths(min(limit, left)) - 1]
        whole = [start, *kept][: few_lengths(1 + len(kept))]
        given.append(torch.tensor([whole]))
        left -= len(whole)
    found = tokens - left
    _refuse_few(source, name, found, len(given))
    batches = tuple(slice(i, i + 1) for i in range(len(given)))
    return CalibrationPairs(
        batches=batches,
        held=batches[:: min(HELD_OUT, len(batches))],
        sha256=read.sha256,
        found=found,
        given=tuple(given),
        source=lambda number: encode(pairs[number]),
    )


def planned_pairs(
    source: ConversionSource,
    name: str,
    tokens: int,
    seed: int,
    *,
    row_tokens: int | None = None,
    device: torch.device = CPU,
) -> CalibrationPairs:
    """As `calibration_pairs`, before any weight is read."""
    with quiet_transformers():
        runnable = open_runnable(str(source.real[0]), encoder_decoders=True)
        found = calibration_pairs(
            source, runnable, name, tokens, seed, row_tokens=row_tokens, device=device
        )
        for batch in found.batches:
            found.source(batch.start)  # says what is wrong
        return found


def few_lengths(length: int) -> int:
    """The longest that is kept of `length` tokens, at least 1."""
    step = next(step for least, step in _STEPS if length >= least)
    return max(1, length // step * step)


def _pairs(name: str) -> Pairs:
    path = Path(name)
    if path.suffix in (".tsv", ".jsonl"):
        return read_pairs(path, _OPTION)
    text = named_text(name, _OPTION)
    found = pairs_of_lines(text)
    if not found.pairs:
        raise HeadcountError(f"{_OPTION} {name}: holds no line to read")
    return found


@lru_cache(maxsize=2)
def _said(
    folder: str,
    files: tuple[tuple[Path, FileIdentity], ...],
    pairs: tuple[Pair, ...],
    tokens: int,
    limit: int,
    device: torch.device,
) -> tuple[tuple[int, ...], ...]:
    """What the model in `folder` says of the sources of `pairs`, up to `tokens` tokens; a run that
    was planned does not ask it again while its `files` are the same."""
    runnable = open_runnable(folder, encoder_decoders=True)
    loaded = load_model(runnable, dtype=torch.float32, place=Placement(inputs=device))
    own = encoded_pairs(
        pairs,
        load_tokenizer(runnable.folder),
        Encoder.of(loaded.model),
        positions=limit,
        max_tokens=tokens,
        option=_OPTION,
    )
    return tuple(tuple(pair.target[0].tolist()) for pair in own)


def _target(pair: Pair, tokenizer: PreTrainedTokenizerBase, runnable: RunnableModel) -> list[int]:
    ids: list[int] = tokenizer(text_target=pair.target)["input_ids"]
    check_ids(ids, runnable)
    return ids


def _sources(
    tokenizer: PreTrainedTokenizerBase, runnable: RunnableModel, limit: int
) -> Callable[[Pair], Tensor]:
    """What the encoder reads of a pair."""
    encoder = Encoder.unloaded(runnable.config)

    def encode(pair: Pair) -> Tensor:
        found = encoded_source(pair, tokenizer, encoder, limit, _OPTION)
        if found.dim() == 2:
            check_ids(found[0].tolist(), runnable)
            found = found[:, : few_lengths(found.shape[1])]
        return found

    return encode


def _refuse_few(source: ConversionSource, name: str, tokens: int, pairs: int) -> None:
    widest = max(mixer.head_dim for mixer in attentions(source.audit.spec).values())
    least = LEAST_BATCHES * widest
    if tokens < least or pairs < LEAST_BATCHES:
        raise HeadcountError(
            f"{name}: {tokens:,} tokens of targets in {pairs:,} pairs are too few to calibrate"
            f" with: at least {least:,} in {LEAST_BATCHES} pairs are needed, and tens of thousands"
            " are better"
        )
