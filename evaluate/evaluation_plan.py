"""How the request of an evaluation is settled, before any weight is read."""

from dataclasses import dataclass
from pathlib import Path

import torch

from headcount.model.errors import HeadcountError
from headcount.running.load import resolve_device, resolve_load_dtype
from headcount.running.runnable import RunnableModel, open_runnable
from headcount.running.text import Text, read_text
from headcount.running.tokens import (
    TokenSequence,
    check_ids,
    encode,
    has_vocabulary,
    load_tokenizer,
)

from .comparable import check_same_tokens, check_same_vocabulary
from .evaluation_request import MIN_REPEATS, EvaluationRequest
from .speed import split_budget
from .windows import resolve_window


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """A request with everything checked and every default filled in."""

    request: EvaluationRequest
    runnables: tuple[RunnableModel, ...]  # the model, then the original if there is one
    text: Text
    tokens: TokenSequence
    tokenizer: str
    window: int
    stride: int
    prompt_tokens: int
    decode_tokens: int
    dtype: torch.dtype | None
    device: torch.device


def plan_evaluation(request: EvaluationRequest) -> EvaluationPlan:
    """Checks everything that can be checked without weights. Raises HeadcountError."""
    if request.max_tokens < 1:
        raise HeadcountError(f"--max-tokens {request.max_tokens}: it takes at least 1")
    if request.repeats < MIN_REPEATS:
        raise HeadcountError(f"{request.repeats} repeats: a median takes at least {MIN_REPEATS}")
    device, dtype = resolve_device(request.device), resolve_load_dtype(request.dtype)
    text = read_text(request.text)
    names = [request.model] if request.against is None else [request.model, request.against]
    runnables = tuple(open_runnable(name) for name in names)
    limits = {s.id: s.max_position_embeddings for s in runnables}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    window, stride = resolve_window(request.window, request.stride, known)
    prompt_tokens, decode_tokens = split_budget(min(known.values(), default=None))
    folder, tokens = _tokens(request, runnables, text)
    return EvaluationPlan(
        request=request,
        runnables=runnables,
        text=text,
        tokens=tokens,
        tokenizer=str(folder),
        window=window,
        stride=stride,
        prompt_tokens=prompt_tokens,
        decode_tokens=decode_tokens,
        dtype=dtype,
        device=device,
    )


def _tokens(
    request: EvaluationRequest, runnables: tuple[RunnableModel, ...], text: Text
) -> tuple[Path, TokenSequence]:
    """The tokenizer's folder and the tokens, checked to mean the same to all models."""
    folder = request.tokenizer or runnables[0].folder
    tokenizer = load_tokenizer(folder)
    tokens = encode(tokenizer, text, request.max_tokens)
    for original in runnables[1:]:
        check_same_vocabulary(runnables[0], original)
    for runnable in runnables:
        check_ids(tokens, runnable)
    for original in runnables[1:]:
        if request.tokenizer is None and has_vocabulary(original.folder):
            check_same_tokens(
                tokenizer,
                runnables[0],
                original,
                text=text,
                tokens=tokens,
                max_tokens=request.max_tokens,
            )
    return folder, tokens
