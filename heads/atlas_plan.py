"""How the request of an atlas is settled, before any weight is read."""

from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from headcount.audit import Audit, audit_model
from headcount.convert.homes.custom_config import KEPT
from headcount.model.errors import HeadcountError
from headcount.running.load import resolve_load_dtype
from headcount.running.placement import Placement, resolve_placement
from headcount.running.runnable import RunnableModel, is_encoder_decoder, open_runnable
from headcount.running.tokens import begins_with_bos, has_vocabulary, load_tokenizer

from .attentions import DecoderAttention, decoder_attentions
from .heads_request import HeadsRequest
from .sequences import LEAST_TOKENS, RepeatedTokens, repeated_tokens, resolve_tokens

_SPECIAL = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@dataclass(frozen=True, kw_only=True, slots=True)
class AtlasPlan:
    """A request with everything checked and every default filled in."""

    request: HeadsRequest
    name: str
    runnable: RunnableModel
    audit: Audit
    attentions: tuple[DecoderAttention, ...]
    sequences: RepeatedTokens
    start_id: int | None
    dtype: torch.dtype | None
    place: Placement

    @property
    def short(self) -> torch.Tensor:
        """The start of one sequence, for a pass that shows only which module is where."""
        return self.sequences.ids[:1, : self.sequences.start + LEAST_TOKENS].to(self.place.inputs)

    @property
    def has_encoder(self) -> bool:
        return is_encoder_decoder(self.runnable.config)

    def stored_heads(self, one: DecoderAttention | None) -> tuple[int, ...] | None:
        """Which heads of a pattern an attention's are, where our modelling file computes pruned
        ones, too: places without weights. None: all."""
        kept = (getattr(self.runnable.config, KEPT, None) or {}) if one else {}
        found = kept.get(str(one.layer)) if one and not one.is_cross else None
        return None if found is None else tuple(found)


def plan_atlas(request: HeadsRequest, folder: Path, name: str) -> AtlasPlan:
    """Checks everything that can be checked without weights: of the model in `folder`, which
    reports call `name`. Raises HeadcountError."""
    if min(request.sequences, request.batch_size) < 1:
        raise HeadcountError("--sequences and --batch-size: both take at least 1")
    place, dtype = resolve_placement(request.device), resolve_load_dtype(request.dtype)
    runnable = open_runnable(str(folder), encoder_decoders=True)
    audit = audit_model(str(folder))
    has_encoder = is_encoder_decoder(runnable.config)
    tokenizer = load_tokenizer(folder) if has_vocabulary(folder) else None
    start_id = _start_id(runnable.config, tokenizer)
    usable = usable_ids(runnable, tokenizer)
    start = 0 if start_id is None else 1
    tokens = resolve_tokens(
        request.tokens,
        usable=len(usable),
        positions=audit.spec.max_position_embeddings,
        start=start,
        name=name,
    )
    return AtlasPlan(
        request=request,
        name=name,
        runnable=runnable,
        audit=audit,
        attentions=decoder_attentions(audit.spec, name, has_encoder=has_encoder),
        sequences=repeated_tokens(
            usable,
            tokens=tokens,
            sequences=request.sequences,
            start=start_id,
            seed=request.seed,
        ),
        start_id=start_id,
        dtype=dtype,
        place=place,
    )


def _start_id(config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """What a sequence begins with: what a decoder with an encoder is started with, else BOS where
    the tokenizer puts one before a text."""
    if is_encoder_decoder(config):
        given = (getattr(config, name, None) for name in ("decoder_start_token_id", "bos_token_id"))
        return next((one for one in given if isinstance(one, int)), None)
    if tokenizer is not None and begins_with_bos(tokenizer):
        return int(tokenizer.bos_token_id)
    return None


def usable_ids(runnable: RunnableModel, tokenizer: PreTrainedTokenizerBase | None) -> torch.Tensor:
    """The ids that random tokens are drawn from: all but special ones."""
    config = runnable.config.get_text_config()
    given = (getattr(config, name, None) for name in _SPECIAL)
    special = {one for value in given for one in (value if isinstance(value, list) else [value])}
    size = runnable.vocab_size
    if tokenizer is not None:
        special |= set(tokenizer.all_special_ids)
        size = min(size, len(tokenizer))
    return torch.tensor([one for one in range(size) if one not in special])
