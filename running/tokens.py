"""Tokens of a text, as the model's own tokenizer cuts it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from headcount.model.errors import HeadcountError
from headcount.sources.path import check_name

from .boundary import third_party
from .runnable import RunnableModel, refuse_tokenizer_code
from .strict_presence import strict_presence
from .text import Text
from .vocabulary_files import VOCABULARY_FILES


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenSequence:
    """Token ids of a text. The first, BOS or not, is only context; every later one is scored.

    `nbytes` counts the UTF-8 bytes of the scored part, None where the tokenizer cannot tell;
    `unknown` counts the tokens that stand for text which the vocabulary does not have.
    """

    ids: tuple[int, ...]
    bos: bool
    nbytes: int | None
    unknown: int

    @property
    def scored(self) -> int:
        return len(self.ids) - 1


def has_vocabulary(folder: Path) -> bool:
    """Whether `folder` holds a tokenizer's vocabulary, in any of the usual forms."""
    return any((folder / name).exists() for name in VOCABULARY_FILES) or any(
        folder.glob("*.tiktoken")
    )


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The tokenizer in `folder`. Raises HeadcountError."""
    check_name(str(folder))
    if not has_vocabulary(folder):
        raise HeadcountError(
            f"{folder}: no tokenizer there; pass --tokenizer FOLDER with the one the model was"
            " trained with"
        )
    refuse_tokenizer_code(folder)
    with third_party(f"{folder}: transformers cannot load the tokenizer"), strict_presence():
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True, trust_remote_code=False
        )
    return tokenizer


def encode(tokenizer: PreTrainedTokenizerBase, text: Text, max_tokens: int) -> TokenSequence:
    """`text` as tokens, cut so that at most `max_tokens` are scored.

    BOS stands first if the tokenizer puts it before a text by its own convention, and nothing else
    is added. Raises HeadcountError if nothing is left to score.
    """
    with third_party(f"{text.name}: the tokenizer cannot encode it"):
        encoded = tokenizer(
            text.content, add_special_tokens=False, return_offsets_mapping=tokenizer.is_fast
        )
    ids = list(encoded["input_ids"])
    bos = [tokenizer.bos_token_id] if begins_with_bos(tokenizer) else []
    kept = ids[: max_tokens + 1 - len(bos)]
    if len(bos) + len(kept) < 2:
        raise HeadcountError(
            f"{text.name}: {len(ids)} token(s){' after BOS' if bos else ''}: nothing to score,"
            " since the first token has no context; give a longer text"
        )
    ends = [end for _, end in encoded["offset_mapping"]] if tokenizer.is_fast else None
    return TokenSequence(
        ids=tuple(bos + kept),
        bos=bool(bos),
        nbytes=_scored_bytes(text.content, ends, 0 if bos else 1, len(kept)),
        unknown=0 if tokenizer.unk_token_id is None else kept.count(tokenizer.unk_token_id),
    )


def check_ids(ids: Sequence[int], runnable: RunnableModel) -> None:
    """Raises HeadcountError if a token has no place in the model's vocabulary."""
    if max(ids, default=0) >= runnable.vocab_size:
        raise HeadcountError(
            f"{runnable.id}: the tokenizer gives token {max(ids):,}, the model has"
            f" {runnable.vocab_size:,}: this is not its tokenizer"
        )


def begins_with_bos(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether the tokenizer, asked for special tokens, puts BOS before a text."""
    if tokenizer.bos_token_id is None:
        return False
    plain = tokenizer("a", add_special_tokens=False)["input_ids"]
    special = tokenizer("a", add_special_tokens=True)["input_ids"]
    begins_plain = plain[:1] == [tokenizer.bos_token_id]
    return bool(special[:1] == [tokenizer.bos_token_id]) and not begins_plain


def _scored_bytes(content: str, ends: list[int] | None, unscored: int, kept: int) -> int | None:
    """UTF-8 bytes of the tokens `[unscored, kept)`, whose last characters end before `ends`."""
    if ends is None:
        return None
    begin = ends[unscored - 1] if unscored else 0
    return len(content[begin : ends[kept - 1]].encode())
