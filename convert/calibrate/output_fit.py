"""The output projection of an attention, fitted anew by least squares."""

from collections.abc import Iterable
from typing import Any

import torch

from ..merge.attention_weights import AttentionWeights, Merged
from .attention_runner import AttentionRunner, given, output_of, with_output
from .layer_target import LayerTarget
from .layer_task import LayerTask, States
from .normal_equations import Fit, NormalEquations, relative
from .reconstruct import Tying, reconstruct

# Ridges that are tried, relative to the mean square of what is fitted to.
_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)

Batch = tuple[slice, torch.Tensor, torch.Tensor]  # rows, what is read, what should come of it


class OutputFit:
    """Fits an attention, which was assigned to the layer already, to what it should give."""

    def __init__(
        self,
        task: LayerTask,
        states: States,
        runner: AttentionRunner,
        target: LayerTarget,
        merged: Merged,
        tying: Tying,
    ) -> None:
        self._task, self._states, self._tying = task, states, tying
        self._runner, self._target, self._merged = runner, target, merged
        self._size = 0.0  # sum of squares of the held-out targets

    def run(self, weights: AttentionWeights, seed: int) -> tuple[AttentionWeights, dict[str, Any]]:
        """The fitted weights, and what was measured: squared errors of the held-out rows, relative
        to their targets, after each rung."""
        ladder = self._task.ladder
        fit = self._fit(weights, self._aimed())
        errors = {"merged": relative(fit.before, self._size)}
        measured: dict[str, Any] = {"target": self._target.name, "output_error": errors}
        if ladder.refit != "none":
            weights = with_output(weights, fit.change)
            errors["refit"] = relative(fit.after, self._size)
        if ladder.reconstruct:
            weights, measured["steps"] = self._reconstruct(weights, seed)
            fit = self._fit(weights, self._again(weights))
            weights = with_output(weights, fit.change)
            errors["reconstructed"] = relative(fit.after, self._size)
        return weights, measured

    def _fit(self, weights: AttentionWeights, batches: Iterable[Batch]) -> Fit:
        count, width, value_dim = weights.o.shape
        equations = NormalEquations(
            count * value_dim, width, bias=weights.o_bias is not None, dtype=weights.o.dtype
        )
        for batch, heads, target in batches:
            add = equations.hold if batch in self._task.text.held else equations.add
            add(heads, target - output_of(heads, weights))
        return equations.solve(_RIDGES)

    def _aimed(self) -> Iterable[Batch]:
        """What the merged heads give on converted rows, and what their output should be, which
        takes the place of what was noted of the original layer."""
        states, text = self._states, self._task.text
        for batch in text.batches:
            looked = self._target.run(states.converted[batch], stop=True)
            target = self._target.target(looked, states.target[batch])
            states.target[batch] = target
            if self._task.ladder.reconstruct:
                states.given[batch] = given(looked.seen)
            if batch in text.held:
                self._size += float(target.double().square().sum())
            assert looked.seen.heads is not None
            yield batch, self._runner.those_staying(looked.seen.heads), target

    def _again(self, weights: AttentionWeights) -> Iterable[Batch]:
        for batch in self._task.text.batches:
            heads = self._runner.heads(self._states.given[batch], weights, self._merged)
            yield batch, heads, self._states.target[batch]

    def _reconstruct(self, weights: AttentionWeights, seed: int) -> tuple[AttentionWeights, int]:
        task, states = self._task, self._states
        scale = self._size / sum(states.target[batch].numel() for batch in task.text.held)

        def loss(now: AttentionWeights, batch: slice) -> torch.Tensor:
            heads = self._runner.heads(states.given[batch], now, self._merged)
            return (output_of(heads, now) - states.target[batch]).square().mean() / (scale or 1.0)

        with torch.enable_grad():
            found = reconstruct(
                weights,
                self._tying,
                loss,
                fitted=task.text.fitted,
                held=task.text.held,
                steps=task.ladder.reconstruct,
                seed=seed,
            )
        return found.weights, found.step
