"""The last projection of an MLP, fitted anew by least squares.

What a layer gives is linear in that projection, so that the layer need not be run again with the
new one: what the MLP's last features give more is added to what the layer gave.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import torch

from .layer_hooks import input_of
from .layer_task import LayerTask, States
from .normal_equations import NormalEquations, relative
from .output_uses import LastProjection, in_rows
from .state_rows import StateRows

# Ridges that are tried, relative to the mean square of what is fitted to.
_RIDGES = (1e-3, 1e-2, 1e-1)


def fitted_projection(task: LayerTask, states: States) -> LastProjection | None:
    """The projection that can be fitted: of a dense MLP, and kept by the files as it is."""
    if task.ladder.refit != "mlp":
        return None

    def found() -> LastProjection | None:
        first = task.text.batches[0]
        call, hidden = task.calls(first), states.converted[first]
        last = task.uses.last_projection(task.layer, call, hidden, task.place)
        return last if last is not None and task.stored(f"{last.path}.weight") else None

    return task.shared.from_owner(task.text.batches[0], found)


class MlpFit:
    """Of a layer whose attention is the new one already. `states.converted` moves on to what the
    layer gives with the MLP's new projection, unless the layer `is_last`."""

    def __init__(
        self, task: LayerTask, states: States, last: LastProjection, *, is_last: bool
    ) -> None:
        self._task, self._states, self._last, self._is_last = task, states, last, is_last
        module = task.layer.get_submodule(last.path)
        self._weight, self._bias = module.get_parameter("weight"), module._parameters.get("bias")

    def run(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """The new weight and bias by their paths in the layer, fitted to what the original layer
        gave (`states.original`), and the squared errors of the held-out rows, relative to that."""
        last, text, states = self._last, self._task.text, self._states
        width, outputs = self._rows(self._weight).shape
        equations = NormalEquations(
            width,
            outputs,
            bias=self._bias is not None,
            dtype=self._weight.dtype,
            device=self._weight.device,
        )
        kept = None if self._is_last else states.features.rows(width)
        size = 0.0

        def make(batch: slice) -> Iterable[torch.Tensor]:
            features, output = self._run(batch)
            wanted = states.original[batch]
            if kept is not None:
                kept[batch], states.converted[batch] = features, output
            rest, held = (wanted - output) / last.factor, batch in text.held
            square = [wanted.double().square().sum()] if held else []
            return chain(square, equations.parts(features, rest, held=held))

        def take(batch: slice, parts: Iterator[torch.Tensor]) -> None:
            nonlocal size
            held = batch in text.held
            if held:
                size += float(next(parts))
            equations.take(parts, held=held)

        task = self._task
        task.each(text.batches, make, take)
        fit = task.here(task.shared.from_main(lambda: equations.solve(_RIDGES)))
        made = self._made(fit.change)
        if kept is not None:
            self._move_on(made, kept)
        return made, {
            name: relative(error * last.factor**2, size)
            for name, error in (("before", fit.before), ("after", fit.after))
        }

    def skip(self, made: Mapping[str, torch.Tensor]) -> None:
        """Moves the states on as `run` did when it made `made`, to the last bit."""
        for batch in self._task.shared.mine(self._task.text.batches):
            features, output = self._run(batch)
            self._states.converted[batch] = output + self._more(made, features)

    def _run(self, batch: slice) -> tuple[torch.Tensor, torch.Tensor]:
        """What the projection reads of a batch and what the layer gives, with the old one."""
        task, noted = self._task, list[torch.Tensor]()
        hidden = self._states.converted[batch]
        with input_of(task.layer, self._last.path, noted.append):
            output = task.calls(batch).run(task.layer, hidden)
        return in_rows(noted[0], hidden), output

    def _made(self, change: torch.Tensor) -> dict[str, torch.Tensor]:
        path, rows = self._last.path, change[: self._rows(self._weight).shape[0]]
        made = {f"{path}.weight": self._weight + self._rows(rows.to(self._weight.dtype))}
        if self._bias is not None:
            made[f"{path}.bias"] = self._bias + change[-1].to(self._bias.dtype)
        return made

    def _move_on(self, made: Mapping[str, torch.Tensor], features: StateRows) -> None:
        converted = self._states.converted
        for batch in self._task.shared.mine(self._task.text.batches):
            converted[batch] = converted[batch] + self._more(made, features[batch])

    def _more(self, made: Mapping[str, torch.Tensor], features: torch.Tensor) -> torch.Tensor:
        """What the layer gives more than with the old projection."""
        path = self._last.path
        more = features @ self._rows(made[f"{path}.weight"] - self._weight)
        if self._bias is not None:
            more = more + (made[f"{path}.bias"] - self._bias)
        return more * self._last.factor

    def _rows(self, weight: torch.Tensor) -> torch.Tensor:
        """[features, width] of a weight as the class keeps it, and the other way round."""
        return weight if self._last.transposed else weight.T
