"""What every head is worth, exactly: the loss without it."""

from collections.abc import Callable
from contextlib import ExitStack

import torch
from torch import nn

from .gated_heads import turned_down
from .text_run import TextRun


@torch.no_grad()
def ablated(
    run: TextRun, *, ablated_to_mean: bool, tell: Callable[[], object] = lambda: None
) -> dict[int, tuple[float, ...]]:
    """Layer -> by how much the loss rises, in nats a token, without each of its heads: what it
    gives is its mean over the text, or nothing.

    One pass a head, from its layer on: `run` went forward, and its rows hold what that layer is
    given. The whole model is in memory. `tell` is called after each head.
    """
    text = run.text
    with ExitStack() as stack:
        model = stack.enter_context(run.layered.around())
        layers = [stack.enter_context(run.layered.layer(index)) for index in range(len(run.calls))]
        without = _Without(run, model, layers)
        base = [run.losses(model, batch, run.given[-1][batch]).mean() for batch in text.batches]
        before = float(torch.stack(base).double().mean())
        found: dict[int, tuple[float, ...]] = {}
        for index, mean in run.means.items():
            losses = []
            for head in range(len(mean)):
                to = mean if ablated_to_mean else torch.zeros_like(mean)
                losses.append(without.loss(index, head, to) - before)
                tell()
            found[index] = tuple(losses)
    return found


class _Without:
    def __init__(self, run: TextRun, model: nn.Module, layers: list[nn.Module]) -> None:
        self._run, self._model, self._layers = run, model, layers

    def loss(self, index: int, head: int, to: torch.Tensor) -> float:
        """With what a head gives replaced by `to`, of all heads [H, dv]."""
        batches = self._run.text.batches
        found = [self._batch(index, head, to, batch).mean() for batch in batches]
        return float(torch.stack(found).double().mean())

    def _batch(self, index: int, head: int, to: torch.Tensor, batch: slice) -> torch.Tensor:
        run = self._run
        hidden, outputs = run.given[index][batch], run.outputs(index)
        assert outputs is not None
        gates = torch.ones(1, 1, outputs.heads, dtype=hidden.dtype, device=hidden.device)
        gates[..., head] = 0
        with outputs.gated(self._layers[index], len(hidden), lambda a: turned_down(a, to, gates)):
            hidden = run.calls[index].run(self._layers[index], hidden)
        for after in range(index + 1, len(self._layers)):
            hidden = run.calls[after].run(self._layers[after], hidden)
        return run.losses(self._model, batch, hidden)
