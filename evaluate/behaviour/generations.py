"""Greedy continuations of the same prompts, side by side."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headcount.running.boundary import run_model
from headcount.running.generate import cache_argument
from headcount.running.placement import inputs_device


@dataclass(frozen=True, kw_only=True, slots=True)
class Generation:
    """What each goes on with, at most `tokens` tokens. `same` counts those that both begin with,
    None without an original."""

    prompt: str
    model: str
    against: str | None
    tokens: int
    same: int | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def generations(
    models: Sequence[PreTrainedModel],
    prompts: Tensor,
    decode: Callable[[list[int]], str],
    *,
    tokens: int,
) -> tuple[Generation, ...]:
    """Of each prompt ([prompts, tokens]), by the model, and the original if it is there."""
    found = []
    for prompt in prompts:
        made = [greedy(model, prompt, tokens=tokens) for model in models]
        other = made[1] if len(made) > 1 else None
        found.append(
            Generation(
                prompt=decode(prompt.tolist()),
                model=decode(made[0]),
                against=None if other is None else decode(other),
                tokens=tokens,
                same=None if other is None else _same(made[0], other),
            )
        )
    return tuple(found)


@torch.inference_mode()
def greedy(model: PreTrainedModel, prompt: Tensor, *, tokens: int) -> list[int]:
    """The likeliest token after `prompt` ([n]), then after both… up to `tokens`, or to EOS."""
    name, ends = cache_argument(model), _ends(model)
    ids = prompt[None].to(inputs_device(model))
    read = ids
    state: dict[str, Any] = {}
    made: list[int] = []
    while len(made) < tokens:
        output = run_model(model, input_ids=read, use_cache=name is not None, **state)
        token = output.logits[0, -1].argmax()
        made.append(int(token))
        if made[-1] in ends:
            break
        ids = torch.cat([ids, token.view(1, 1)], dim=1)
        read = ids if name is None else ids[:, -1:]
        state = {} if name is None else {name: getattr(output, name)}
    return made


def _ends(model: PreTrainedModel) -> set[int]:
    end = model.config.get_text_config().eos_token_id
    return set(end) if isinstance(end, list) else {end} - {None}


def _same(made: Sequence[int], other: Sequence[int]) -> int:
    pairs = zip(made, other, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(made), len(other)))
