"""Greedy continuations against a loop without a cache."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headcount.evaluate.behaviour.generations import generations, greedy

pytestmark = pytest.mark.needs_convert
PROMPT = torch.tensor([5, 6, 7, 8, 9])


@torch.no_grad()
def _by_hand(model: Any, tokens: int) -> list[int]:
    ids = PROMPT.tolist()
    for _ in range(tokens):
        logits = model(torch.tensor([ids]), use_cache=False).logits[0, -1]
        ids.append(int(logits.argmax()))
    return ids[len(PROMPT) :]


@pytest.mark.parametrize("name", ["llama", "gpt2", "mistral", "gemma2", "openai-gpt"])
def test_it_is_the_likeliest_token_each_time(build: Callable[..., Any], name: str) -> None:
    model = build(name)
    model.config.eos_token_id = None
    assert greedy(model, PROMPT, tokens=12) == _by_hand(model, 12)


def test_it_ends_with_eos(build: Callable[..., Any]) -> None:
    model = build("llama")
    model.config.eos_token_id = None
    made = _by_hand(model, 6)
    model.config.eos_token_id = [made[3], 319]
    assert greedy(model, PROMPT, tokens=6) == made[: made.index(made[3]) + 1]


def test_what_both_begin_with_is_counted(build: Callable[..., Any]) -> None:
    model, original = build("llama"), build("llama", seed=1)
    prompts = PROMPT[None]
    same, other = (
        generations([model, second], prompts, str, tokens=5)[0] for second in (model, original)
    )
    assert (same.same, same.model, same.prompt) == (5, same.against, str(PROMPT.tolist()))
    made, against = greedy(model, PROMPT, tokens=5), greedy(original, PROMPT, tokens=5)
    assert other.same == next(at for at in range(5) if made[at] != against[at])
    alone = generations([model], prompts, str, tokens=5)[0]
    assert alone.against is alone.same is None
