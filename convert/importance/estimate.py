"""What every head is worth, from one pass forward and one back: the loss along a gate, to second
order.

A gate g mixes what a head gives with what takes its place, g a + (1 - g) b: against b = 0 the loss
from g = 1 to g = 0 is what masking the head costs, against its mean over the text what a mean
ablation does. To second order that is -L' + L''/2. The slope L' is the signed one of Michel et al.
2019 (arXiv 1905.10650, whose eq. 2 takes its size in each row); the curvature is Fisher's, the
square of slopes (Kwon et al. 2022, arXiv 2204.09656), with a gate for each token, whose slopes are
taken to be independent. Of a row of T tokens, T - 1 of them predicted, with L their mean loss:

    I_h = E_row [-sum_t s_t + (T - 1) / 2 sum_t s_t^2],   s_t = dL / dg_ht at g = 1.

Where a model has seen the text, the first part is near 0, since no scaling of a head would better
it; where a text is new to it, the second alone misses what heads do harm.
"""

import torch
from torch import nn

from ..calibrate.free_memory import give_back
from .gated_heads import turned_down
from .text_run import TextRun


def estimated(run: TextRun, *, ablated_to_mean: bool) -> dict[int, tuple[float, ...]]:
    """Layer -> the estimate for each of its heads, in nats a token, 0 for one that is gone. `run`
    went forward; its rows are used up. One layer's weights are in memory at a time."""
    slopes = _Slopes(run, ablated_to_mean)
    return {index: tuple(of.mean(0).tolist()) for index, of in sorted(slopes.by_layer().items())}


class _Slopes:
    """From the last layer to the first: `given[-1]` holds the slopes of the loss along what the
    layer at hand gives."""

    def __init__(self, run: TextRun, ablated_to_mean: bool) -> None:
        self._run, self._to_mean = run, ablated_to_mean
        self._slopes = run.given[-1]

    def by_layer(self) -> dict[int, torch.Tensor]:
        """Layer -> the estimate of each row, [rows, heads]."""
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
        """[B, H]: the estimates; the slopes along the hidden states move on."""
        run, outputs = self._run, self._run.outputs(index)
        hidden = run.given[index][batch].requires_grad_()
        heads = 0 if outputs is None else outputs.heads
        shape = (*hidden.shape[:2], heads)
        gates = torch.ones(shape, dtype=hidden.dtype, device=hidden.device, requires_grad=True)
        if outputs is None:
            given = run.calls[index].run(layer, hidden)
        else:
            mean = run.means[index] if self._to_mean else torch.zeros_like(run.means[index])
            staying = run.staying(index)
            own = gates if staying is None else gates * staying
            with outputs.gated(layer, len(hidden), lambda a: turned_down(a, mean, own)):
                given = run.calls[index].run(layer, hidden)
        wanted = (hidden, gates) if heads else (hidden,)
        found = torch.autograd.grad(given, wanted, self._slopes[batch])
        self._slopes[batch] = found[0]
        return _to_second_order(found[1].double()) if heads else gates[:, 0]


def _to_second_order(slopes: torch.Tensor) -> torch.Tensor:
    """[B, H] from the slopes of each row's mean loss along gates [B, T, H]."""
    return slopes.square().sum(1) * (slopes.shape[1] - 1) / 2 - slopes.sum(1)
