"""One layer of the ladder: its attention merged, then fitted to what the original layer gives.

Everything that is fitted reads what the converted layers before it give, and aims at what the
original layer gave: it also makes up for what they lost. A step that is not better on held-out rows
is not taken.
"""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from ..merge.attention import AttentionWeights, Freedom, Groups, Merged, Moments
from ..merge.grouping import similar_groups
from ..merge.ladder import Ladder
from ..merge.merging import merge_attention
from ..plan.draft import Heads
from ..rewrite.tensors import AttentionTensors, Read, tensors_of, weights_of
from .attention import AttentionRunner, given, output_of, with_output
from .calls import Call, Stop
from .model import assign
from .moments import MomentSums
from .normal import NormalEquations
from .reconstruct import reconstruct
from .rows import Rows
from .temperature import best_temperatures, divergences, with_temperatures
from .text import CalibrationText
from .used import Use, last_projection, use_of_attention
from .watch import AttentionPlace, Seen, input_of, watching

# Ridges that are tried, relative to the mean square of what is fitted to.
_OUTPUT_RIDGES = (1e-4, 1e-3, 1e-2, 1e-1)
_MLP_RIDGES = (1e-3, 1e-2, 1e-1)
# One batch in so many is looked at to choose groups, or all if gradient descent follows anyway.
_LOOK_AT = 3


@dataclass(frozen=True, kw_only=True, slots=True)
class States:
    """Rows of one conversion: what the `original` and the `converted` prefix give to the layer at
    hand, and room for targets and for what the attention is given."""

    original: Rows
    converted: Rows
    target: Rows
    given: Rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Task:
    """A layer with its weights, and all that says what is to become of it."""

    layer: nn.Module
    call: Call
    place: AttentionPlace
    tensors: AttentionTensors
    read: Read
    freedom: Freedom
    heads: Heads
    ladder: Ladder
    text: CalibrationText


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """The new tensors of a layer by their names in the files, for its attention and, by its path
    in the layer, the MLP's last projection; and what was measured."""

    attention: Mapping[str, torch.Tensor]
    mlp: Mapping[str, torch.Tensor]
    measured: Mapping[str, Any]


class LayerFit:
    """Takes the rungs one after the other; `states` move on to what the layer gives."""

    def __init__(self, task: Task, states: States, seed: int) -> None:
        self._task, self._states, self._seed = task, states, seed
        self._runner = AttentionRunner(task.layer, task.place, task.tensors, task.read)
        self._source = weights_of(task.tensors, task.read)
        self._measured: dict[str, Any] = {}
        self._seen_moments: Moments | None = None
        self._sample: tuple[torch.Tensor, torch.Tensor | None] | None = None
        first = states.original[task.text.batches[0]]
        with watching(task.layer, task.place) as seen:
            task.call.run(task.layer, first)
        self._runner.called(seen)
        self._use = self._use_of(first)

    def run(self, *, is_last: bool) -> Layer:
        """All rungs. `is_last`: no layer after this one needs what the new one gives."""
        task = self._task
        groups = self._groups()
        moments = self._look(groups)
        merged = merge_attention(self._source, task.freedom, groups, moments, task.ladder.method)
        self._measured |= _of_merged(merged)
        weights = self._tempered(merged)
        with self._runner.fast():
            return self._fitted(merged, weights, is_last=is_last)

    def _fitted(self, merged: Merged, weights: AttentionWeights, *, is_last: bool) -> Layer:
        task = self._task
        if task.ladder.refit != "none" or task.ladder.reconstruct:
            weights = self._refit(merged, weights)
        attention = self._made(merged, weights)
        self._assign(attention)
        mlp: dict[str, torch.Tensor] = {}
        if task.ladder.refit == "mlp":
            mlp = self._refit_mlp()
        if not is_last:
            run_rows(task.layer, task.call, self._states.converted, task.text.batches)
        return Layer(attention=attention, mlp=mlp, measured=self._measured)

    def _use_of(self, hidden: torch.Tensor) -> Use | None:
        task = self._task
        if task.ladder.refit == "none" and not task.ladder.reconstruct:
            return None
        use = use_of_attention(task.layer, task.call, hidden, task.place)
        self._measured["target"] = "attention" if use is None else (use.path or "layer")
        return use

    # Choosing groups and merging.

    def _groups(self) -> Groups:
        heads, task = self._task.heads, self._task
        if task.ladder.grouping == "similar" and task.freedom.order and heads.after > 1:
            step = 1 if task.ladder.reconstruct else _LOOK_AT
            sums = MomentSums(self._source, None)
            for batch in task.text.fitted[::step]:
                self._add_moments(sums, self._states.original[batch])
            self._seen_moments = sums.result()
            return similar_groups(self._source, task.freedom, self._seen_moments, heads.after)
        starts = accumulate(heads.runs, initial=0)
        return [
            list(range(start, start + run)) for start, run in zip(starts, heads.runs, strict=False)
        ]

    def _add_moments(self, sums: MomentSums, hidden: torch.Tensor) -> None:
        """Runs the layer as far as its attention."""
        task = self._task
        with watching(task.layer, task.place) as seen, ExitStack() as stack:
            stop = task.layer.get_submodule(task.place.attention)
            stack.callback(stop.register_forward_hook(_stop).remove)
            try:
                task.call.run(task.layer, hidden)
            except Stop:
                pass
        assert seen.inputs is not None
        sums.add(seen.inputs, seen.mixing)

    def _look(self, groups: Groups) -> Moments:
        """Moments for these groups; the original rows move on, and what the new attention should
        aim at is noted."""
        task, states = self._task, self._states
        sums = MomentSums(self._source, groups)
        for number, batch in enumerate(task.text.batches):
            noted: list[torch.Tensor] = []
            with watching(task.layer, task.place) as seen, self._noting(noted.append):
                output = task.call.run(task.layer, states.original[batch])
            if number == 1:
                self._runner.called(seen)
            if batch not in task.text.held:
                assert seen.inputs is not None
                sums.add(seen.inputs, seen.mixing)
                self._sample = self._sample or (given(seen), seen.mixing)
            states.target[batch] = self._at_use(noted, seen, output)
            states.original[batch] = output
        return sums.result(self._seen_moments)

    def _noting(self, take: Any, *, stop: bool = False) -> Any:
        if self._use is None or self._use.path is None:
            return ExitStack()
        return input_of(self._task.layer, self._use.path, take, stop=stop)

    def _at_use(
        self, noted: Sequence[torch.Tensor], seen: Seen, output: torch.Tensor | None
    ) -> torch.Tensor:
        """What the attention's output was added to, and it with it; its output where that is not
        known."""
        if noted:
            return noted[0]
        found = seen.output if self._use is None else output
        assert found is not None
        return found

    # Fitting.

    def _tempered(self, merged: Merged) -> AttentionWeights:
        """The merged weights with scores as sharp as before. Under a norm of queries a factor has
        no effect."""
        task, weights = self._task, merged.weights
        if not task.ladder.temperature or not task.freedom.keys:
            return weights
        assert self._sample is not None
        hidden, mixing = self._sample
        if mixing is None:
            mixing = self._runner.mixing(hidden, self._source, merged)  # says what is wrong
        heads = [h * weights.group_size + i for h in merged.order for i in range(weights.group_size)]
        original = mixing[:, heads]

        def divergence(scale: torch.Tensor) -> torch.Tensor:
            now = with_temperatures(weights, scale)
            return divergences(original, self._runner.mixing(hidden, now, merged))

        scale = best_temperatures(divergence, len(weights.q))
        self._measured["temperature"] = [float(scale.min()), float(scale.max())]
        return with_temperatures(weights, scale)

    def _made(self, merged: Merged, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        task = self._task
        made = tensors_of(task.tensors, weights, task.read, merged.order, merged.groups)
        return {name: value.detach().contiguous() for name, value in made.items()}

    def _assign(self, made: Mapping[str, torch.Tensor]) -> None:
        names = self._task.place.names
        assign(self._task.layer, {names[name]: value for name, value in made.items()})

    def _refit(self, merged: Merged, weights: AttentionWeights) -> AttentionWeights:
        task = self._task
        self._assign(self._made(merged, weights))
        equations = self._equations(weights)
        size = 0.0
        for batch in task.text.batches:
            heads, target = self._aim(batch, weights)
            size += float(target.double().square().sum()) if batch in task.text.held else 0.0
            add = equations.hold if batch in task.text.held else equations.add
            add(heads, target - output_of(heads, weights))
        fit = equations.solve(_OUTPUT_RIDGES)
        errors = {"merged": fit.before / size}
        if task.ladder.refit != "none":
            weights, errors["refit"] = with_output(weights, fit.change), fit.after / size
        if task.ladder.reconstruct:
            weights, errors["reconstructed"] = self._reconstruct(merged, weights, size)
        self._measured["output_error"] = errors
        return weights

    def _equations(self, weights: AttentionWeights) -> NormalEquations:
        count, width, value_dim = weights.o.shape
        bias = weights.o_bias is not None
        return NormalEquations(count * value_dim, width, bias=bias, dtype=weights.o.dtype)

    def _aim(
        self, batch: slice, weights: AttentionWeights
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What the merged heads give on converted rows, and what their output should be."""
        task, states, use = self._task, self._states, self._use
        noted: list[torch.Tensor] = []
        output = None
        with watching(task.layer, task.place) as seen, self._noting(noted.append, stop=True):
            try:
                output = task.call.run(task.layer, states.converted[batch])
            except Stop:
                pass
        assert seen.heads is not None and seen.output is not None
        target = states.target[batch]
        if use is not None:
            now = self._at_use(noted, seen, output)
            target = seen.output + (target - now) / use.factor
        states.target[batch] = target
        if task.ladder.reconstruct:
            states.given[batch] = given(seen)
        return seen.heads, target

    def _reconstruct(
        self, merged: Merged, weights: AttentionWeights, size: float
    ) -> tuple[AttentionWeights, float]:
        task, states = self._task, self._states
        scale = size / sum(states.target[batch].numel() for batch in task.text.held)

        def loss(now: AttentionWeights, batch: slice) -> torch.Tensor:
            made = output_of(self._runner.heads(states.given[batch], now, merged), now)
            return (made - states.target[batch]).square().mean() / scale

        with torch.enable_grad():
            found = reconstruct(
                weights,
                merged.groups,
                loss,
                fitted=task.text.fitted,
                held=task.text.held,
                steps=task.ladder.reconstruct,
                seed=self._seed,
            )
        self._measured["steps"] = found.step
        weights = found.weights
        equations = self._equations(weights)
        for batch in task.text.batches:
            heads = self._runner.heads(states.given[batch], weights, merged)
            add = equations.hold if batch in task.text.held else equations.add
            add(heads, states.target[batch] - output_of(heads, weights))
        fit = equations.solve(_OUTPUT_RIDGES)
        return with_output(weights, fit.change), fit.after / size

    def _refit_mlp(self) -> dict[str, torch.Tensor]:
        task, states = self._task, self._states
        first = states.converted[task.text.batches[0]]
        last = last_projection(task.layer, task.call, first, task.place)
        if last is None:
            self._measured["mlp_error"] = None
            return {}
        module = task.layer.get_submodule(last.path)
        weight, bias = module.get_parameter("weight"), module._parameters.get("bias")
        features = weight.shape[0 if last.transposed else 1]
        width = weight.shape[1 if last.transposed else 0]
        equations = NormalEquations(features, width, bias=bias is not None, dtype=weight.dtype)
        size = 0.0
        for batch in task.text.batches:
            noted: list[torch.Tensor] = []
            with input_of(task.layer, last.path, noted.append):
                output = task.call.run(task.layer, states.converted[batch])
            rest = (states.original[batch] - output) / last.factor
            size += float(states.original[batch].double().square().sum()) if batch in task.text.held else 0.0
            (equations.hold if batch in task.text.held else equations.add)(noted[0], rest)
        fit = equations.solve(_MLP_RIDGES)
        self._measured["mlp_error"] = {"before": fit.before / size, "after": fit.after / size}
        rows = fit.change[:features].to(weight.dtype)
        made = {f"{last.path}.weight": weight + (rows if last.transposed else rows.T)}
        if bias is not None:
            made[f"{last.path}.bias"] = bias + fit.change[-1].to(bias.dtype)
        assign(task.layer, made)
        return made


def run_rows(layer: nn.Module, call: Call, rows: Rows, batches: Sequence[slice]) -> None:
    """Moves rows on to what `layer` gives."""
    for batch in batches:
        rows[batch] = call.run(layer, rows[batch])


def _stop(module: nn.Module, args: Any, output: Any) -> None:
    raise Stop


def _of_merged(merged: Merged) -> dict[str, Any]:
    ends = list(accumulate(merged.groups, initial=0))
    return {
        "groups": [
            list(merged.order[start:end]) for start, end in zip(ends, ends[1:], strict=False)
        ],
        "key_error": merged.key_error,
        "value_error": merged.value_error,
        "key_mean_error": merged.key_mean_error,
        "value_mean_error": merged.value_mean_error,
    }
