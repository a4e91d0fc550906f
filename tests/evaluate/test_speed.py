"""How long prompt and decode steps take: what fits, medians, and models that take turns."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headcount.evaluate.speed import split_budget, summarize, take_turns
from headcount.running.generate import Timing

pytestmark = pytest.mark.needs_convert

PROMPT, DECODE = torch.arange(20)[None], torch.arange(4)[None]


@pytest.mark.parametrize(
    ("limit", "expected"), [(None, (512, 32)), (512, (480, 32)), (11, (9, 2)), (2, (1, 1))]
)
def test_prompt_and_decode_fit_the_positions(limit: int | None, expected: tuple[int, int]) -> None:
    assert split_budget(limit) == expected


def test_speed_is_tokens_over_the_median_time() -> None:
    timings = [Timing(prefill_seconds=p, decode_seconds=d) for p, d in ((1, 9), (2, 4), (90, 2))]
    speed = summarize(timings, prompt=100, decode=8)
    assert speed.prefill_tokens_per_second == 50
    assert speed.decode_tokens_per_second == 2


def test_models_take_turns(build: Callable[..., Any]) -> None:
    models = [build("llama", num_hidden_layers=1) for _ in range(2)]
    order: list[int] = []
    for place, model in enumerate(models):
        model.register_forward_hook(lambda *_, place=place: order.append(place))
    take_turns(models, PROMPT, DECODE, repeats=3)
    assert order == [place for _ in range(3) for place in (0, 1) for _ in range(5)]
