"""What every head is worth, from one pass forward and one back: the slope of the loss along a gate.

I_h = E_row |dL(row) / dg_h| at g = 1, where the gate g_h mixes what head h gives with what takes
its place, g a + (1 - g) b (Michel et al. 2019, arXiv 1905.10650, eq. 2). Against b = 0 it is the
first-order estimate of what masking the head costs, against its mean over the text that of a mean
ablation.
"""

import torch
from torch import nn

from ..calibrate.free_memory import give_back
from .gated_heads import turned_down
from .text_run import TextRun


def estimated(run: TextRun, *, ablated_to_mean: bool) -> dict[int, tuple[float, ...]]:
    """Layer -> the estimate for each of its heads, in nats a token. `run` went forward; its rows
    are used up. One layer's weights are in memory at a time."""
    slopes = _Slopes(run, ablated_to_mean)
    return {
        index: tuple(row.abs().mean(0).tolist()) for index, row in sorted(slopes.by_layer().items())
    }


class _Slopes:
    """From the last layer to the first: `given[-1]` holds the slopes of the loss along what the
    layer at hand gives."""

    def __init__(self, run: TextRun, ablated_to_mean: bool) -> None:
        self._run, self._to_mean = run, ablated_to_mean
        self._slopes = run.given[-1]

    def by_layer(self) -> dict[int, torch.Tensor]:
        """Layer -> [rows, heads]."""
        run = self._run
        with run.layered.around() as model:
            for batch in run.text.batches:
                self._slopes[batch] = self._slope(model, batch)
        found = {}
        for index in reversed(range(len(run.calls))):
            with run.layered.layer(index) as layer:
                gates = [self._batch(index, layer, batch) for batch in run.text.batches]
            give_back()
            if index in run.means:
                found[index] = torch.cat(gates)
        return found

    @torch.enable_grad()
    def _slope(self, model: nn.Module, batch: slice) -> torch.Tensor:
        """Of the loss of each row, along what the last layer gives."""
        last = self._slopes[batch].requires_grad_()
        found = torch.autograd.grad(self._run.losses(model, batch, last).sum(), last)
        return found[0]

    @torch.enable_grad()
    def _batch(self, index: int, layer: nn.Module, batch: slice) -> torch.Tensor:
        """[B, H]: the slopes along the gates; those along the hidden states move on."""
        run, outputs = self._run, self._run.outputs(index)
        hidden = run.given[index][batch].requires_grad_()
        heads = 0 if outputs is None else outputs.heads
        gates = torch.ones(len(hidden), heads, dtype=hidden.dtype, requires_grad=True)
        if outputs is None:
            given = run.calls[index].run(layer, hidden)
        else:
            mean = run.means[index] if self._to_mean else torch.zeros_like(run.means[index])
            with outputs.gated(layer, len(hidden), lambda a: turned_down(a, mean, gates)):
                given = run.calls[index].run(layer, hidden)
        wanted = (hidden, gates) if heads else (hidden,)
        found = torch.autograd.grad(given, wanted, self._slopes[batch])
        self._slopes[batch] = found[0]
        return found[1].double() if heads else gates
