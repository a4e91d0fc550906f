"""Prefill and decode speed with transformers' default cache, models taking turns."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from torch import Tensor
from transformers import PreTrainedModel

from headcount.running.generate import Timing, generate

MAX_PROMPT_TOKENS = 512
MAX_DECODE_TOKENS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Medians over the repeats, batch size 1."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float


def split_budget(limit: int | None) -> tuple[int, int]:
    """Prompt and decode tokens to time, which fit in `limit` positions together."""
    total = MAX_PROMPT_TOKENS + MAX_DECODE_TOKENS
    if limit is not None:
        total = min(total, limit)
    decode = min(MAX_DECODE_TOKENS, max(total // 4, 1))
    return total - decode, decode


def tiled(ids: Tensor, length: int) -> Tensor:
    """`length` tokens: those of `ids` ([tokens]) over and over, as [1, length]."""
    return ids.repeat(-(-length // len(ids)))[:length].unsqueeze(0)


def take_turns(
    models: Sequence[PreTrainedModel], prompt: Tensor, decode: Tensor, *, repeats: int
) -> list[Speed]:
    """The speed of each model, over `repeats` runs of `generate` each.

    The models take turns, which spreads what disturbs the machine over all of them. Each should
    have run once before, as a warm-up.
    """
    timings: list[list[Timing]] = [[] for _ in models]
    for _ in range(repeats):
        for model, times in zip(models, timings, strict=True):
            times.append(generate(model, prompt, decode)[0])
    return [summarize(t, prompt=prompt.shape[1], decode=decode.shape[1]) for t in timings]


def summarize(timings: Sequence[Timing], *, prompt: int, decode: int) -> Speed:
    """Tokens per second at the median time, for `prompt` and `decode` tokens a run."""
    return Speed(
        prefill_tokens_per_second=prompt / median(t.prefill_seconds for t in timings),
        decode_tokens_per_second=decode / median(t.decode_seconds for t in timings),
    )
