"""The output projection of an attention, fitted anew by least squares."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
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

# Of a batch: what the heads give, and what should come of it.
Look = Callable[[slice], tuple[torch.Tensor, torch.Tensor]]


class OutputFit:
    """Fits an attention, which was assigned to the layer already, to what it should give. Errors
    are known in the main process alone."""

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
        fit = self._fit(weights, self._aimed, gathers=ladder.reconstruct > 0)
        errors = {"merged": relative(fit.before, self._size)}
        measured: dict[str, Any] = {"target": self._target.name, "output_error": errors}
        if ladder.refit != "none":
            weights = with_output(weights, fit.change)
            errors["refit"] = relative(fit.after, self._size)
        if ladder.reconstruct:
            reconstructed = self._task.shared.from_main(lambda: self._reconstruct(weights, seed))
            weights, measured["steps"] = self._task.here(reconstructed)
            fit = self._fit(weights, self._again(weights))
            weights = with_output(weights, fit.change)
            errors["reconstructed"] = relative(fit.after, self._size)
        return weights, measured

    def _fit(self, weights: AttentionWeights, look: Look, *, gathers: bool = False) -> Fit:
        """`gathers`: the main process gets the rows of all, for gradient descent."""
        count, width, value_dim = weights.o.shape
        equations = NormalEquations(
            count * value_dim,
            width,
            bias=weights.o_bias is not None,
            dtype=weights.o.dtype,
            device=weights.o.device,
        )
        text, states, shared = self._task.text, self._states, self._task.shared

        def make(batch: slice) -> Iterable[torch.Tensor]:
            heads, target = look(batch)
            rest = target - output_of(heads, weights)
            held = batch in text.held
            square = [target.double().square().sum()] if held else []
            rows = [states.given[batch], target] if gathers and shared.is_far(batch) else []
            return chain(square, rows, equations.parts(heads, rest, held=held))

        def take(batch: slice, parts: Iterator[torch.Tensor]) -> None:
            held = batch in text.held
            if held:
                self._size += float(next(parts))
            if gathers and shared.is_far(batch):
                states.given[batch], states.target[batch] = next(parts), next(parts)
            equations.take(parts, held=held)

        self._size = 0.0
        self._task.each(text.batches, make, take)
        return self._task.here(shared.from_main(lambda: equations.solve(_RIDGES)))

    def _aimed(self, batch: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """What the merged heads give on converted rows, and what their output should be, which
        takes the place of what was noted of the original layer."""
        states = self._states
        looked = self._target.run(batch, states.converted[batch], stop=True)
        target = self._target.target(looked, states.target[batch])
        states.target[batch] = target
        if self._task.ladder.reconstruct:
            states.given[batch] = given(looked.seen)
        assert looked.seen.heads is not None
        return self._runner.those_staying(looked.seen.heads), target

    def _again(self, weights: AttentionWeights) -> Look:
        def look(batch: slice) -> tuple[torch.Tensor, torch.Tensor]:
            heads = self._runner.heads(batch, self._states.given[batch], weights, self._merged)
            return heads, self._states.target[batch]

        return look

    def _reconstruct(self, weights: AttentionWeights, seed: int) -> tuple[AttentionWeights, int]:
        task, states = self._task, self._states
        scale = self._size / sum(states.target[batch].numel() for batch in task.text.held)

        def loss(now: AttentionWeights, batch: slice) -> torch.Tensor:
            heads = self._runner.heads(batch, states.given[batch], now, self._merged)
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
