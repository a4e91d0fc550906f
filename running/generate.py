"""Prefill and decode steps of given tokens, timed, through the model's own cache."""

import inspect
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from .boundary import run_model


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds of one prefill, and of the decode steps after it."""

    prefill_seconds: float
    decode_seconds: float


def cache_argument(model: PreTrainedModel) -> str | None:
    """What the model's forward calls its cache (the name changed within transformers 5)."""
    parameters = inspect.signature(model.forward).parameters
    return next((name for name in ("cache", "past_key_values") if name in parameters), None)


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


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
