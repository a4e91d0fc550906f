"""Tiny random encoder-decoders: with biases of positions, without, and one that reads speech."""

from collections.abc import Callable, Mapping
from typing import Any

from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    T5Config,
    T5ForConditionalGeneration,
    WhisperConfig,
    WhisperForConditionalGeneration,
)

SPECIAL = {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
# What the one that reads speech is given: [features, frames].
FEATURES, FRAMES = 8, 12


def t5(vocabulary: int) -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    return T5ForConditionalGeneration(T5Config(vocab_size=vocabulary, **sizes, **SPECIAL))


def bart(vocabulary: int) -> Any:
    return BartForConditionalGeneration(
        BartConfig(vocab_size=vocabulary, bos_token_id=0, **_stacks(), **SPECIAL)
    )


def whisper(vocabulary: int) -> Any:
    audio = {
        "num_mel_bins": FEATURES,
        "max_source_positions": FRAMES // 2,
        "max_target_positions": 48,
    }
    own = {"bos_token_id": 0, "suppress_tokens": None, "begin_suppress_tokens": None}
    return WhisperForConditionalGeneration(
        WhisperConfig(vocab_size=vocabulary, **_stacks(), **audio, **own, **SPECIAL)
    )


def _stacks() -> dict[str, Any]:
    sides = ("encoder", "decoder")
    return {
        **{"init_std": 0.3, "d_model": 32, **{f"{side}_layers": 2 for side in sides}},
        **{f"{side}_attention_heads": 4 for side in sides},
        **{f"{side}_ffn_dim": 48 for side in sides},
    }


ENCODER_DECODERS: Mapping[str, Callable[[int], Any]] = {"t5": t5, "bart": bart, "whisper": whisper}
