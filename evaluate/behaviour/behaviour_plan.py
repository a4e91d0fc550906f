"""What the probes read, settled before any weight is."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from headcount.heads.sequences import LEAST_TOKENS, RepeatedTokens, repeated_tokens

from .first_tokens import FirstTokenRows, choose_first_tokens, first_token_rows
from .passages import passages
from .recall import PlantedRows, plant_pairs
from .repeats import repeated_rows
from .sizes import SIZES, UNLIMITED, ProbeSizes

_SEED = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class BehaviourPlan:
    """Rows of tokens for each probe; None for one that `not_measured` gives a reason for, by its
    key of the document."""

    size: str
    sizes: ProbeSizes
    window: int
    ids: Tensor
    induction: RepeatedTokens | None
    repeated_text: RepeatedTokens | None
    recall: PlantedRows | None
    first_tokens: FirstTokenRows | None
    prompts: Tensor
    new_tokens: int
    not_measured: dict[str, str]


def plan_behaviour(
    size: str,
    *,
    ids: Sequence[int],
    start: int | None,
    usable: Tensor,
    special: Sequence[int],
    window: int,
    positions: int | None,
) -> BehaviourPlan:
    """For the text `ids`, whose windows of `window` tokens begin with the token `start` if there is
    one. Random tokens are drawn from `usable` ([n]); `positions` are the models', None for no
    limit."""
    sizes, text = SIZES[size], torch.tensor(ids)
    begin = 0 if start is None else 1
    words = text if start is None else text[text != start]
    reasons: dict[str, str] = {}
    prompt = max(min(sizes.prompt_tokens, window // 2), 1)
    prompts = passages(words, tokens=max(prompt - begin, 1), count=sizes.prompts)
    return BehaviourPlan(
        size=size,
        sizes=sizes,
        window=window,
        ids=text,
        induction=_induction(sizes, usable, start, (window - begin) // 2, reasons),
        repeated_text=_repeated_text(sizes, words, start, (window - begin) // 2, reasons),
        recall=_recall(
            sizes,
            words,
            usable,
            start,
            window if size == "brief" else max(positions or UNLIMITED, window),
            reasons,
        ),
        first_tokens=_first_tokens(sizes, words, start, special, window, reasons),
        prompts=torch.cat([prompts.new_full((len(prompts), begin), start or 0), prompts], dim=1),
        new_tokens=max(min(sizes.new_tokens, window - prompt), 1),
        not_measured=reasons,
    )


def _induction(
    sizes: ProbeSizes, usable: Tensor, start: int | None, room: int, reasons: dict[str, str]
) -> RepeatedTokens | None:
    tokens = min(sizes.random_tokens, room, len(usable))
    if tokens < LEAST_TOKENS:
        reasons["induction"] = f"there is room for {tokens} different tokens, repeated"
        return None
    return repeated_tokens(
        usable, tokens=tokens, sequences=sizes.random_sequences, start=start, seed=_SEED
    )


def _repeated_text(
    sizes: ProbeSizes, words: Tensor, start: int | None, room: int, reasons: dict[str, str]
) -> RepeatedTokens | None:
    tokens = min(sizes.passage_tokens, room, len(words))
    if tokens < LEAST_TOKENS:
        reasons["repeated_text"] = f"there is room for {tokens} tokens of the text, repeated"
        return None
    return repeated_rows(passages(words, tokens=tokens, count=sizes.passages), start=start)


def _recall(
    sizes: ProbeSizes,
    words: Tensor,
    usable: Tensor,
    start: int | None,
    length: int,
    reasons: dict[str, str],
) -> PlantedRows | None:
    filler = passages(words, tokens=length, count=sizes.recall_rows)
    planted = plant_pairs(filler, usable, start=start, seed=_SEED)
    if not planted.asked:
        reasons["recall"] = f"{length} tokens have no room for pairs"
        return None
    return planted


def _first_tokens(
    sizes: ProbeSizes,
    words: Tensor,
    start: int | None,
    special: Sequence[int],
    window: int,
    reasons: dict[str, str],
) -> FirstTokenRows | None:
    tokens = min(sizes.body_tokens, window - 1, len(words))
    if start is not None:
        reasons["first_tokens"] = "every window begins with BOS"
        return None
    if tokens < LEAST_TOKENS:
        reasons["first_tokens"] = f"there is room for {tokens} tokens behind another"
        return None
    first = choose_first_tokens(words.tolist(), special, count=sizes.first_tokens, seed=_SEED)
    return first_token_rows(first, passages(words, tokens=tokens, count=sizes.bodies))
