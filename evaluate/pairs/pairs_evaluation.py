"""Evaluating an encoder-decoder, alone or against the original that it was made from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers

from headcount.audit import audit_model
from headcount.model.dtypes import BITS
from headcount.model.errors import HeadcountError
from headcount.running.load import LoadedModel, load_model, resolve_load_dtype
from headcount.running.measured_cache import CacheBytes, cache_dtype, measured_cache_bytes
from headcount.running.pairs.encoded_pairs import EncodedPair, Encoder, encoded_pairs
from headcount.running.pairs.pairs_file import Pair, Pairs, read_pairs
from headcount.running.placement import inputs_device, resolve_placement
from headcount.running.runnable import RunnableModel, is_encoder_decoder, open_runnable
from headcount.running.tokens import has_vocabulary, load_tokenizer

from ..comparable import check_same_tokenizer, check_same_vocabulary
from ..documents import read_documents
from ..errors import IncomparableModelsError
from ..evaluation_document import Comparison, EvaluationReport, ModelScore, Settings
from ..evaluation_request import EvaluationRequest
from ..loss import TextScores
from ..text_warnings import few_tokens
from .scored_pairs import score_pairs, teacher_forced


def reads_pairs(request: EvaluationRequest) -> bool:
    """Whether the model is an encoder-decoder. Raises HeadcountError for one that cannot be run,
    and for pairs that are given to another."""
    config = open_runnable(request.model, encoder_decoders=True).config
    if request.pairs is not None and not is_encoder_decoder(config):
        raise HeadcountError(
            f"{request.model}: --pairs is for encoder-decoders; of a decoder give --text"
        )
    return is_encoder_decoder(config)


def evaluate_pairs(request: EvaluationRequest) -> EvaluationReport:
    """Of targets that are read as they stand (teacher forcing). Raises HeadcountError, and
    EvaluationFailedError where a loss is not finite."""
    if request.tasks:
        raise HeadcountError(f"{request.model}: --tasks runs decoders, not encoder-decoders")
    read = _read(request)
    names = [request.model, *([] if request.against is None else [request.against])]
    runnables = [open_runnable(name, encoder_decoders=True) for name in names]
    folder = request.tokenizer or runnables[0].folder
    tokenizer = load_tokenizer(folder)
    _check_comparable(runnables, tokenizer, given=request.tokenizer is not None)
    place, dtype = resolve_placement(request.device), resolve_load_dtype(request.dtype)
    loaded = [load_model(one, dtype=dtype, place=place) for one in runnables]
    limits = [one.max_position_embeddings for one in runnables]
    pairs = tuple(
        encoded_pairs(
            read.pairs,
            tokenizer,
            Encoder.of(loaded[-1].model),
            positions=min((limit for limit in limits if limit), default=None),
            max_tokens=request.max_tokens,
        )
    )
    if not pairs:
        raise HeadcountError(f"{read.name}: no target has a token")
    original = loaded[1].model if loaded[1:] else None
    scores = score_pairs(loaded[0].model, pairs, original)
    settings = _settings(request, read, pairs, loaded[0], str(folder))
    return _report(loaded, pairs, scores, settings)


def _read(request: EvaluationRequest) -> Pairs:
    """Without pairs each line of the text is a source; the original says the target itself."""
    if request.pairs is not None:
        return read_pairs(request.pairs)
    text, lines = read_documents(request.text, documents=True)
    pairs = tuple(Pair(source=line.content) for line in lines)
    return Pairs(name=text.name, pairs=pairs, sha256=text.sha256)


def _check_comparable(runnables: list[RunnableModel], tokenizer: Any, *, given: bool) -> None:
    for original in runnables[1:]:
        if not is_encoder_decoder(original.config):
            raise IncomparableModelsError(f"{original.id} is no encoder-decoder")
        check_same_vocabulary(runnables[0], original)
        if not given and has_vocabulary(original.folder):
            check_same_tokenizer(tokenizer, runnables[0], original)


def _report(
    loaded: list[LoadedModel],
    pairs: Sequence[EncodedPair],
    scores: TextScores,
    settings: Settings,
) -> EvaluationReport:
    losses = [scores.losses, scores.original_losses]
    longest = max(pairs, key=lambda pair: pair.target.shape[1])
    summaries, warnings = list[ModelScore](), list[str]()
    for one, own in zip(loaded, losses, strict=False):
        assert own is not None
        cache, said = _weighed(one, longest)
        warnings += [*one.warnings, *said]
        summaries.append(
            ModelScore(
                id=one.runnable.id,
                loss=own.mean().item(),
                tokens=len(own),
                bits_per_byte=None,
                dtype=one.dtype,
                cache=cache,
                speed=None,
            )
        )
    tokens = summaries[-1].tokens
    of_text = few_tokens(settings.text, tokens)
    return EvaluationReport(
        model=summaries[0],
        against=summaries[1] if summaries[1:] else None,
        comparison=Comparison.of(scores.divergence),
        behaviour=None,
        settings=settings,
        warnings=(*of_text, *warnings),
        of_text=of_text,
        of_text_without_places=few_tokens(Path(settings.text).name, tokens),
    )


@torch.inference_mode()
def _weighed(loaded: LoadedModel, pair: EncodedPair) -> tuple[CacheBytes, tuple[str, ...]]:
    """What is kept once the decoder has read a target, of itself and of what the encoder gives."""
    outputs = teacher_forced(loaded.model, pair)
    kept, tokens = outputs.past_key_values, pair.target.shape[1]
    sides = (kept.self_attention_cache, kept.cross_attention_cache)
    measured = sum(map(measured_cache_bytes, sides))
    dtype = cache_dtype(sides[0]) or loaded.dtype
    predicted = audit_model(str(loaded.runnable.folder)).spec.cache_bytes(
        tokens=tokens,
        encoder_tokens=outputs.encoder_last_hidden_state.shape[1],
        bits=BITS[dtype],
    )
    said: tuple[str, ...] = ()
    if predicted != measured:
        said = (
            f"{loaded.runnable.id}: the audit predicts {predicted:,} cache bytes, the cache holds"
            f" {measured:,}",
        )
    return CacheBytes(predicted=predicted, measured=measured, tokens=tokens, dtype=dtype), said


def _settings(
    request: EvaluationRequest,
    read: Pairs,
    pairs: Sequence[EncodedPair],
    loaded: LoadedModel,
    tokenizer: str,
) -> Settings:
    """A window is a target."""
    longest = max(pair.target.shape[1] for pair in pairs)
    return Settings(
        window=longest,
        stride=longest,
        text=read.name,
        text_sha256=read.sha256,
        documents=len(pairs),
        tokens=sum(pair.target.shape[1] for pair in pairs),
        max_tokens=request.max_tokens,
        bos=False,
        tokenizer=tokenizer,
        dtype=loaded.dtype,
        device=str(inputs_device(loaded.model)),
        threads=torch.get_num_threads(),
        attention=str(loaded.model.config._attn_implementation),
        prompt_tokens=0,
        decode_tokens=0,
        repeats=0,
        torch=torch.__version__,
        transformers=transformers.__version__,
        targets="as given" if request.pairs is not None else _said_by(request),
    )


def _said_by(request: EvaluationRequest) -> str:
    return f"which {request.against or request.model} said itself"
