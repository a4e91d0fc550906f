"""What encoder and decoder read of each pair."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from headcount.model.errors import HeadcountError

from ..load import auto_class
from ..placement import inputs_device
from .pairs_file import Pair

_GENERATED = 64  # tokens that a model says of its own


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedPair:
    """`source` is [1, tokens] or, of speech, [1, features, frames]; `target` [1, tokens]."""

    source: Tensor
    target: Tensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Encoder:
    """What a model's encoder reads, by the name of its argument, in which type and where; and
    `says`: the targets that the model says itself of a source, None: it is not there to ask."""

    input_name: str
    dtype: torch.dtype
    device: torch.device
    says: Callable[[Tensor], Tensor] | None = None

    @classmethod
    def unloaded(cls, config: PreTrainedConfig) -> "Encoder":
        """Of the model that transformers would build of `config`, in float32 on the CPU."""
        built: Any = auto_class(config)._model_mapping[type(config)]
        return cls(
            input_name=built.main_input_name, dtype=torch.float32, device=torch.device("cpu")
        )

    @classmethod
    def of(cls, model: Any) -> "Encoder":
        """That of a loaded model."""
        return cls(
            input_name=model.main_input_name,
            dtype=model.dtype,
            device=inputs_device(model),
            says=_own_targets(model),
        )


def decoder_inputs(target: Tensor, start: int) -> Tensor:
    """What a decoder reads to predict all of `target` ([rows, tokens]) as it stands, of the same
    shape: the token that it starts with, and all but the last."""
    return torch.cat([torch.full_like(target[:, :1], start), target[:, :-1]], dim=1)


def encoded_pairs(
    pairs: Sequence[Pair],
    tokenizer: PreTrainedTokenizerBase,
    encoder: Encoder,
    *,
    positions: int | None,
    max_tokens: int,
    option: str = "--pairs",
) -> Iterator[EncodedPair]:
    """As many as have `max_tokens` of targets together; `encoder` is the original's, which gives
    the targets that a pair has not. Both sides are cut after `positions`. Raises HeadcountError."""
    left = max_tokens
    for pair in pairs:
        if left <= 0:
            return
        source = encoded_source(pair, tokenizer, encoder, positions, option).to(encoder.device)
        if pair.target is None:
            assert encoder.says is not None
            target = encoder.says(source)
        else:
            ids = tokenizer(text_target=pair.target)["input_ids"]
            target = torch.tensor([ids], device=encoder.device)
        target = target[:, : min(left, positions or left)]
        if target.shape[1]:
            left -= target.shape[1]
            yield EncodedPair(source=source, target=target)


def encoded_source(
    pair: Pair,
    tokenizer: PreTrainedTokenizerBase,
    encoder: Encoder,
    positions: int | None,
    option: str,
) -> Tensor:
    """What the encoder reads of one pair, at most `positions` tokens. Raises HeadcountError."""
    wants_text = encoder.input_name == "input_ids"
    if isinstance(pair.source, str) != wants_text:
        wanted = '"source", text' if wants_text else '"features", a .npy file of input_features'
        raise HeadcountError(f"{option}: this model's encoder reads {wanted}")
    if isinstance(pair.source, Path):
        return _features(pair.source, option).to(encoder.dtype)
    ids = tokenizer(pair.source)["input_ids"][:positions]
    return torch.tensor([ids or [tokenizer.pad_token_id or 0]])


def _features(path: Path, option: str) -> Tensor:
    """[1, features, frames]. Raises HeadcountError."""
    try:
        found = torch.from_numpy(np.load(path, allow_pickle=False))
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise HeadcountError(f"{option}: {path} is no .npy file of numbers ({error})") from None
    return found if found.ndim == 3 else found[None]


def _own_targets(model: Any) -> Callable[[Tensor], Tensor]:
    """What the model says most likely of a source, without the token that it starts with."""

    def said(source: Tensor) -> Tensor:
        name = model.main_input_name
        found = model.generate(**{name: source}, max_new_tokens=_GENERATED, do_sample=False)
        return torch.as_tensor(found[:, 1:])

    return said
