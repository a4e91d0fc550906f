"""The text that a conversion is fitted to: rows of tokens of one length."""

from dataclasses import dataclass, replace
from itertools import chain
from math import isqrt
from pathlib import Path

import torch
from transformers import PreTrainedTokenizerBase

from headcount.model.decoder_attentions import attentions
from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes
from headcount.running.asked_for import BUILTIN, text_wanted
from headcount.running.boundary import quiet_transformers
from headcount.running.runnable import RunnableModel, open_runnable
from headcount.running.text import Text, packaged_text, read_text
from headcount.running.tokens import (
    TokenSequence,
    check_ids,
    encode,
    has_vocabulary,
    load_tokenizer,
)

from ..plan.request import CALIBRATION_ROW_TOKENS
from ..plan.source import ConversionSource
from .calibration_rows import HELD_OUT, LEAST_BATCHES, CalibrationRows
from .layered_model import refuse_encoder_decoder

# Characters that are taken for one token to be sure of it; text beyond what they come to is left.
_LONGEST_TOKEN = 16
MAX_TOKENS = 2**40
# Tokens of one batch: what a layer computes at a time.
BATCH_TOKENS = 2048
# Bytes that a layer's attention weights of one row may take: [heads, tokens, tokens] in float32.
_LARGEST_MIXING = 2**31


@dataclass(frozen=True, kw_only=True, slots=True)
class CalibrationText(CalibrationRows):
    """`ids` [rows, tokens]."""

    ids: torch.Tensor

    @property
    def tokens(self) -> int:
        return self.ids.numel()

    @property
    def row_tokens(self) -> int:
        """Tokens of one row."""
        return self.ids.shape[1]


def planned_text(
    source: ConversionSource, name: str, tokens: int, seed: int, *, row_tokens: int | None = None
) -> CalibrationText:
    """What `source` would be calibrated on, before any weight is read. Raises HeadcountError for a
    source that is no decoder, and as `calibration_text`."""
    refuse_encoder_decoder(source)
    with quiet_transformers():
        runnable = open_runnable(str(source.real[0]))
        return calibration_text(source, runnable, name, tokens, seed, row_tokens=row_tokens)


def calibration_text(
    source: ConversionSource,
    runnable: RunnableModel,
    name: str,
    tokens: int,
    seed: int,
    *,
    option: str = "--calibration",
    row_tokens: int | None = None,
) -> CalibrationText:
    """At most `tokens` tokens of the file `name`, or of the prose in the package for `builtin`, in
    rows of `row_tokens` (None: CALIBRATION_ROW_TOKENS), or of as many as the model takes.

    Rows follow one another in the text, and are shuffled. `option` named it. Raises HeadcountError
    without a tokenizer, for a text that is too short, and for rows whose attention weights would
    take more memory than is well.
    """
    text = named_text(name, option)
    if not has_vocabulary(source.real[0]):
        raise HeadcountError(
            f"{source.folder}: no tokenizer there, so that the calibration text cannot be cut into"
            " tokens: put the model's tokenizer files beside its weights"
        )
    tokenizer = load_tokenizer(source.real[0])
    asked = row_tokens or CALIBRATION_ROW_TOKENS
    longest = min(asked, runnable.max_position_embeddings or asked)
    _check_mixing(source, longest)
    ids = spread_tokens(tokenizer, text, tokens, row=longest)
    check_ids(ids.ids, runnable)
    widest = max(mixer.head_dim for mixer in attentions(source.audit.spec).values())
    return cut_rows(
        torch.tensor(ids.ids),
        longest=longest,
        least=LEAST_BATCHES * widest,
        seed=seed,
        text=text,
    )


def _check_mixing(source: ConversionSource, row: int) -> None:
    heads = max(m.num_attention_heads for m in attentions(source.audit.spec).values())
    most = isqrt(_LARGEST_MIXING // (4 * heads))
    if row > most:
        raise HeadcountError(
            f"--calibration-row-tokens {row:,}: the attention weights of {heads} heads would take"
            f" {format_bytes(4 * heads * row**2)} in each layer: give at most {most:,}"
        )


def named_text(name: str, option: str) -> Text:
    """The file `name`, or the prose in this package, of which `evaluate` reads nothing."""
    if name == BUILTIN:
        return packaged_text(__package__, BUILTIN)
    try:
        return read_text(Path(name))
    except HeadcountError as error:
        raise HeadcountError(f"{error}; {text_wanted(option)}") from error


def spread_tokens(
    tokenizer: PreTrainedTokenizerBase, text: Text, tokens: int, *, row: int
) -> TokenSequence:
    """At most `tokens` tokens, in rows from all over the text if it has more than that."""
    wanted = -(-tokens // row)
    width = _LONGEST_TOKEN * row  # characters, so that a row is full
    content = text.content
    if len(content) <= wanted * width:
        found = encode(tokenizer, text, MAX_TOKENS)
        rows = [found.ids[i : i + row] for i in range(0, len(found.ids), row)]
        whole = [r for r in rows if len(r) == row]
        if len(whole) < wanted:
            return replace(found, ids=found.ids[:tokens])
        chosen = [whole[i * len(whole) // wanted] for i in range(wanted)]
        return replace(found, ids=tuple(chain.from_iterable(chosen))[:tokens])
    starts = (i * (len(content) - width) // wanted for i in range(wanted))
    pieces = [replace(text, content=content[start : start + width]) for start in starts]
    parts = [encode(tokenizer, piece, row - 1) for piece in pieces if piece.content.strip()]
    return replace(parts[0], ids=tuple(chain.from_iterable(p.ids for p in parts))[:tokens])


def cut_rows(
    ids: torch.Tensor, *, longest: int, least: int, seed: int, text: Text
) -> CalibrationText:
    """Batches of whole rows. Raises HeadcountError below `least` tokens."""
    if len(ids) < least:
        raise HeadcountError(
            f"{text.name}: {len(ids):,} tokens are too few to calibrate with: at least {least:,}"
            " are needed, and tens of thousands are better"
        )
    length = min(longest, len(ids) // LEAST_BATCHES)
    per_batch = max(1, min(BATCH_TOKENS // length, len(ids) // length // LEAST_BATCHES))
    count = len(ids) // length // per_batch
    rows = ids[: count * per_batch * length].view(-1, length)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    batches = tuple(slice(i * per_batch, (i + 1) * per_batch) for i in range(count))
    return CalibrationText(
        ids=rows[order].contiguous(),
        batches=batches,
        held=batches[:: min(HELD_OUT, count)],
        sha256=text.sha256,
        found=len(ids),
    )
