"""Prefill and decode speed with transformers' default cache, models taking turns."""

import inspect
import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.running.boundary import run_model

MAX_PROMPT_TOKENS = 512
MAX_DECODE_TOKENS = 32


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of one prefill, and of the decode steps after it."""

    prefill_seconds: float
    decode_seconds: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Speed:
    """Medians over the repeats, batch size 1."""

    prefill_tokens_per_second: float
    decode_tokens_per_second: float


def cache_argument(model: PreTrainedModel) -> str | None:
    """What the model's forward calls its cache (the name changed within transformers 5)."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), None)


def split_budget(limit: int | None) -> tuple[int, int]:
    """Prompt and decode tokens to time, which fit in `limit` positions together."""
    total = MAX_PROMPT_TOKENS + MAX_DECODE_TOKENS
    if limit is not None:
        total = min(total, limit)
    decode = min(MAX_DECODE_TOKENS, max(total // 4, 1))
    return total - decode, decode


def repeated(ids: Tensor, length: int) -> Tensor:
    """`length` tokens: those of `ids` ([tokens]) over and over, as [1, length]."""
    return ids.repeat(-(-length // len(ids)))[:length].unsqueeze(0)


@torch.inference_mode()
def generate(model: PreTrainedModel, prompt: Tensor, decode: Tensor) -> tuple[Timing, Any]:
    """Prefills `prompt` ([1, tokens]), then decodes as many steps as `decode` ([1, steps]) holds.

    Returns the times and the cache that is left, which holds all these tokens. The tokens are
    given, not sampled: what is timed is the model. The model must take a cache.
    """
    name = cache_argument(model)
    if name is None:
        raise ValueError(f"{type(model).__name__} takes no cache")
    start = _now(prompt.device)
    output = run_model(model, input_ids=prompt, use_cache=True, logits_to_keep=1)
    middle = _now(prompt.device)
    for step in range(decode.shape[1]):
        state = {name: getattr(output, name)}
        token = decode[:, step : step + 1]
        output = run_model(model, input_ids=token, use_cache=True, **state)
    end = _now(prompt.device)
    timing = Timing(prefill_seconds=middle - start, decode_seconds=end - middle)
    return timing, getattr(output, name)


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


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
