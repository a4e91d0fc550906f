"""How the request of an evaluation is settled, before any weight is read."""

from dataclasses import dataclass

import torch
from transformers import PreTrainedTokenizerBase

from headcount.heads.atlas_plan import usable_ids
from headcount.model.errors import HeadcountError
from headcount.running.load import resolve_load_dtype
from headcount.running.placement import Placement, resolve_placement
from headcount.running.runnable import RunnableModel, open_runnable
from headcount.running.text import Text
from headcount.running.tokens import TokenSequence, check_ids, has_vocabulary, load_tokenizer

from .behaviour.behaviour_plan import BehaviourPlan, plan_behaviour
from .comparable import check_same_tokens, check_same_vocabulary
from .documents import EncodedText, encode_documents, read_documents
from .evaluation_request import BEHAVIOURS, MIN_REPEATS, EvaluationRequest
from .speed import split_budget
from .tasks import check_tasks
from .windows import Window, resolve_window


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationPlan:
    """A request with everything checked and every default filled in."""

    request: EvaluationRequest
    runnables: tuple[RunnableModel, ...]  # the model, then the original if there is one
    text: Text
    tokens: TokenSequence
    documents: int
    windows: tuple[Window, ...]
    tokenizer: PreTrainedTokenizerBase
    tokenizer_folder: str
    window: int
    stride: int
    behaviour: BehaviourPlan | None
    prompt_tokens: int
    decode_tokens: int
    dtype: torch.dtype | None
    place: Placement


def plan_evaluation(request: EvaluationRequest) -> EvaluationPlan:
    """Checks everything that can be checked without weights. Raises HeadcountError."""
    check_request(request)
    check_tasks(request)
    place, dtype = resolve_placement(request.device), resolve_load_dtype(request.dtype)
    text, texts = read_documents(request.text, documents=request.documents)
    names = [request.model] if request.against is None else [request.model, request.against]
    runnables = tuple(open_runnable(name) for name in names)
    limits = {s.id: s.max_position_embeddings for s in runnables}
    known = {name: limit for name, limit in limits.items() if limit is not None}
    positions = min(known.values(), default=None)
    window, stride = resolve_window(request.window, request.stride, known)
    prompt_tokens, decode_tokens = split_budget(positions)
    folder = request.tokenizer or runnables[0].folder
    tokenizer = load_tokenizer(folder)
    encoded = encode_documents(tokenizer, text, texts, request.max_tokens)
    _check_tokens(request, runnables, tokenizer, (text, texts), encoded)
    return EvaluationPlan(
        request=request,
        runnables=runnables,
        text=text,
        tokens=encoded.tokens,
        documents=len(encoded.lengths),
        windows=encoded.windows(window, stride),
        tokenizer=tokenizer,
        tokenizer_folder=str(folder),
        window=window,
        stride=stride,
        behaviour=_behaviour(request, runnables[0], tokenizer, encoded.tokens, window, positions),
        prompt_tokens=prompt_tokens,
        decode_tokens=decode_tokens,
        dtype=dtype,
        place=place,
    )


def check_request(request: EvaluationRequest) -> None:
    """Raises HeadcountError for one that measures nothing, of whichever model."""
    if request.max_tokens < 1:
        raise HeadcountError(f"--max-tokens {request.max_tokens}: it takes at least 1")
    if request.repeats < MIN_REPEATS:
        raise HeadcountError(f"{request.repeats} repeats: a median takes at least {MIN_REPEATS}")
    if request.behaviour not in BEHAVIOURS:
        raise HeadcountError(f"--behaviour {request.behaviour}: give {', '.join(BEHAVIOURS)}")


def _behaviour(
    request: EvaluationRequest,
    runnable: RunnableModel,
    tokenizer: PreTrainedTokenizerBase,
    tokens: TokenSequence,
    window: int,
    positions: int | None,
) -> BehaviourPlan | None:
    if request.behaviour == "none":
        return None
    ends = (tokenizer.bos_token_id, tokenizer.eos_token_id)
    return plan_behaviour(
        request.behaviour,
        ids=tokens.ids,
        start=tokens.ids[0] if tokens.bos else None,
        usable=usable_ids(runnable, tokenizer),
        special=[
            one for one in dict.fromkeys(ends) if one is not None and one < runnable.vocab_size
        ],
        window=window,
        positions=positions,
    )


def _check_tokens(
    request: EvaluationRequest,
    runnables: tuple[RunnableModel, ...],
    tokenizer: PreTrainedTokenizerBase,
    read: tuple[Text, tuple[Text, ...]],
    encoded: EncodedText,
) -> None:
    """Raises HeadcountError unless the tokens mean the same to all models."""
    for original in runnables[1:]:
        check_same_vocabulary(runnables[0], original)
    for runnable in runnables:
        check_ids(encoded.tokens.ids, runnable)
    for original in runnables[1:]:
        if request.tokenizer is None and has_vocabulary(original.folder):
            check_same_tokens(
                tokenizer,
                runnables[0],
                original,
                read=read,
                encoded=encoded,
                max_tokens=request.max_tokens,
            )
