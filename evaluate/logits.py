"""Logits of one window, a few positions at a time: the whole [window, vocabulary] never exists.

The model runs once and its output before the head is kept ([window, hidden_size]); the head then
runs on chunks of positions. Both go through the model's own forward, so logit scales, soft caps and
biases are what they are in the model.
"""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.model.errors import UnsupportedModelError
from headcount.running.boundary import run_model

CHUNK_ELEMENTS = 2**24  # 64 MiB per float32 tensor of [chunk, vocabulary]


def chunk_positions(vocab_size: int) -> int:
    """Positions whose logits are held at a time, at least one."""
    return max(1, CHUNK_ELEMENTS // vocab_size)


class RowLogits:
    """The logits of what a model reads, [rows, …] by the names of its forward's arguments and on
    its device, by ranges of positions; of an encoder-decoder as a `whole` alone.

    `options` go to the model's forward. `hidden_states` are what the model's output has under that
    name once it was run, for each of its stacks: empty unless `options` ask for them.
    """

    def __init__(self, model: PreTrainedModel, read: Mapping[str, Tensor], **options: Any) -> None:
        self.hidden_states: tuple[tuple[Tensor, ...], ...] = ()
        self._model = model
        self._read = dict(read)
        self._options = {"use_cache": False, **options}
        self._replays = [_Replay(body) for body in _bodies(model)]

    def whole(self) -> Tensor:
        """Logits of all positions at once: [rows, tokens, vocabulary]."""
        output = run_model(self._model, **self._read, **self._options)
        self.hidden_states = _hidden_states(output)
        logits: Tensor = output.logits
        return logits

    def at(self, start: int, stop: int) -> Tensor:
        """Logits of the positions `[start, stop)`: [rows, stop - start, vocabulary]."""
        positions = torch.arange(start, stop)  # on the CPU, which indexes every device
        with ExitStack() as stack:
            for replay in self._replays:
                stack.enter_context(replay.installed())
            output = run_model(
                self._model,
                **self._read,
                logits_to_keep=positions,
                **self._options,
            )
        self.hidden_states = _hidden_states(output)
        logits: Tensor = output.logits
        replayable = any(replay.output is not None for replay in self._replays)
        if not replayable or logits.shape[:2] != (self._rows, stop - start):
            raise UnsupportedModelError(
                f"model_type {self._model.config.model_type}: transformers gives its logits only"
                " for all positions at once, which evaluate does not do"
            )
        return logits

    @property
    def _rows(self) -> int:
        return len(next(iter(self._read.values())))


def _hidden_states(output: Any) -> tuple[tuple[Tensor, ...], ...]:
    names = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")
    found = (getattr(output, name, None) for name in names)
    return tuple(states for states in found if states is not None)


class _Replay:
    """Answers for a module: the first call runs it, later ones return what that gave."""

    def __init__(self, body: nn.Module) -> None:
        self.output: Any = None
        self._body = body
        self._forward = body.forward

    @contextmanager
    def installed(self) -> Iterator[None]:
        self._body.forward = self._answer
        try:
            yield
        finally:
            self._body.forward = self._forward

    def _answer(self, *args: Any, **kwargs: Any) -> Any:
        if self.output is None:
            self.output = self._forward(*args, **kwargs)
        return self.output


def _bodies(model: PreTrainedModel) -> list[nn.Module]:
    """The modules that a head's forward may call: the base model, or (OPT) the decoder in it."""
    base: nn.Module = model.base_model
    if base is model:
        return []
    decoder = getattr(base, "decoder", None)
    return [base, decoder] if isinstance(decoder, nn.Module) else [base]
