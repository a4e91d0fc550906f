"""One layer of the ladder: its attention merged, then fitted to what the original layer gives.

Everything that is fitted reads what the converted layers before it give, and aims at what the
original layer gave: it also makes up for what they lost. A step that is not better on held-out rows
is not taken.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import accumulate
from typing import Any

import torch
from torch import nn

from ..merge.attention_weights import AttentionWeights, Groups, Merged, Moments
from ..merge.merging import merge_attention
from ..rewrite.groups import groups_of
from ..rewrite.layer import attention_key, calibration_key, merged_document
from ..rewrite.tensors import weights_of
from ..stream.threads import one_thread
from .attention_runner import given
from .layer_calls import Stop
from .layer_hooks import SeenAttention, watching
from .layer_target import LayerTarget
from .layer_task import FittedLayer, LayerTask, States, run_rows
from .layered_model import assign, assigned
from .mlp_fit import MlpFit, fitted_projection
from .moment_sums import MomentSums
from .output_fit import OutputFit
from .pairs.pair_runner import runner_of
from .placed import CPU, placed
from .reconstruct import TiedHeads, Tying
from .temperature import best_temperatures, divergences, with_temperatures

# One batch in so many is looked at to choose groups, or all if gradient descent follows anyway.
_LOOK_AT = 3

# Of a batch: what an attention reads, its weights, and what keys and values are made of, if that is
# something else.
Read = tuple[torch.Tensor, torch.Tensor | None, torch.Tensor | None]
# What of a batch an attention that is seen adds to sums, and the sums that take it.
Parts = Callable[[SeenAttention], Iterator[torch.Tensor]]
Take = Callable[[Iterator[torch.Tensor]], None]


class LayerFit:
    """Takes the rungs one after the other; `states` move on to what the layer gives."""

    def __init__(self, task: LayerTask, states: States) -> None:
        self._task, self._states = task, states
        self._runner = runner_of(task)
        self._source = weights_of(task.tensors, task.read, task.heads.subset)
        self._measured: dict[str, Any] = {}
        self._sample: tuple[torch.Tensor, torch.Tensor | None] | None = None
        first = task.text.batches[0]
        hidden = task.shared.from_owner(first, lambda: states.original[first])
        self._first = first, task.here(hidden)
        self._target = LayerTarget(task, self._first[1])

    def run(self, seed: int, *, is_last: bool) -> FittedLayer:
        """All rungs. `is_last`: no layer after this one needs what the new one gives."""
        merged = self._merged()
        weights = self._tempered(merged)
        with self._runner.fast():
            return self._fitted(merged, weights, seed, is_last=is_last)

    def _merged(self) -> Merged:
        """The new attention before anything is fitted to text; the original rows move on."""
        task = self._task
        source = placed(self._source, CPU)  # small products, one after the other
        sums = self._sums_of_all()
        chosen_by, groups = None, task.chosen or self._neighbours()
        if sums is not None:

            def chosen() -> tuple[Moments, Groups]:
                moments, own = sums.result(), task.chosen
                if own is None:
                    own = groups_of(source, task.freedom, moments, task.heads, task.ladder)
                return moments, own

            chosen_by, groups = task.shared.from_main(chosen)
        last = self._sums_of(groups)

        def merged() -> Merged:
            moments = None if last is None else last.result(chosen_by)
            with one_thread():
                return merge_attention(source, task.freedom, groups, moments, task.ladder.method)

        return task.here(task.shared.from_main(merged))

    def _tying(self, merged: Merged) -> Tying:
        return TiedHeads(merged.groups)

    def _written(
        self, attention: Mapping[str, torch.Tensor], weights: AttentionWeights
    ) -> Mapping[str, torch.Tensor]:
        """The tensors of the output, for `weights` that are `attention` in the source's files."""
        return attention

    def _document(self, merged: Merged) -> dict[str, Any]:
        return {attention_key(self._task.tensors.where[1]): merged_document(merged)}

    def _as_source(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """Those of the attention by their names in the source's files, of an output's `tensors`."""
        return {name: value for name, value in tensors.items() if name in self._task.place.names}

    def skip(
        self,
        tensors: Mapping[str, torch.Tensor],
        mlp: Mapping[str, torch.Tensor],
        *,
        is_last: bool,
    ) -> None:
        """Moves the states on as `run` does, for a layer that has its new tensors already: all by
        their names in the output, and those of its `mlp` by their paths in the layer."""
        task, mine = self._task, self._task.shared.mine(self._task.text.batches)
        self._runner.called(self._first[0], self._target.run(*self._first).seen)
        run_rows(task.layer, task.calls, self._states.original, mine)
        if is_last:
            return
        tensors, mlp = task.here(tensors), task.here(mlp)
        before = {task.earlier[n]: v for n, v in tensors.items() if n in task.earlier}
        assign(task.layer, before)
        task.assign(self._as_source(tensors))
        with self._runner.fast():
            last = fitted_projection(task, self._states)
            if last is not None:
                MlpFit(task, self._states, last, is_last=False).skip(mlp)
            else:
                run_rows(task.layer, task.calls, self._states.converted, mine)

    def _fitted(
        self, merged: Merged, weights: AttentionWeights, seed: int, *, is_last: bool
    ) -> FittedLayer:
        task, measured = self._task, self._measured
        task.assign(task.made(merged, weights))
        if task.is_fitted:
            fit = OutputFit(
                task, self._states, self._runner, self._target, merged, self._tying(merged)
            )
            weights, found = fit.run(weights, seed)
            measured |= found
        attention = task.made(merged, weights)
        task.assign(attention)
        mlp = {} if task.is_first else self._moved_on(is_last=is_last)
        key = calibration_key(cross=task.tensors.where[1])
        document = {**self._document(merged), key: _rounded(measured)}
        written = self._written(attention, weights)
        return FittedLayer(attention=written, mlp=mlp, measured=document)

    def _moved_on(self, *, is_last: bool) -> dict[str, torch.Tensor]:
        """The MLP's new last projection, with which the converted rows move on."""
        task, measured = self._task, self._measured
        if task.ladder.refit == "mlp":
            measured["mlp_error"] = None
        last = fitted_projection(task, self._states)
        if last is not None:
            mlp_fit = MlpFit(task, self._states, last, is_last=is_last)
            mlp, measured["mlp_error"] = mlp_fit.run()
            return mlp
        if not is_last:
            mine = task.shared.mine(task.text.batches)
            run_rows(task.layer, task.calls, self._states.converted, mine)
        return {}

    def _sums_of_all(self) -> MomentSums | None:
        """Of all K/V heads together, where groups are chosen by their moments."""
        task = self._task
        if task.ladder.grouping == "contiguous" or not task.freedom.order:
            return None
        if task.heads.after == 1 or not task.heads.is_merged:
            return None
        step = 1 if task.ladder.reconstruct else _LOOK_AT
        sums, cross = MomentSums(self._source, None, task.text.white), task.tensors.where[1]

        def look(batch: slice) -> Iterator[torch.Tensor]:
            stopping = task.layer.get_submodule(task.place.attention).register_forward_hook(_stop)
            with watching(task.layer, task.place, cross=cross) as seen, suppress(Stop):
                task.calls(batch).run(task.layer, self._states.original[batch])
            stopping.remove()
            return sums.parts(*self._read(seen))

        with assigned(task.layer, task.replaced):
            task.each(task.text.fitted[::step], look, lambda _, parts: sums.take(parts))
        return sums

    def _read(self, seen: SeenAttention) -> Read:
        """What the attention read, and its weights; what keys and values are made of, if that is
        something else."""
        assert seen.inputs is not None
        return seen.inputs, self._mixing(seen), seen.memory

    def _mixing(self, seen: SeenAttention) -> torch.Tensor | None:
        """The attention weights of the heads that stay."""
        staying = self._task.heads.subset
        if seen.mixing is None or staying is None:
            return seen.mixing
        return seen.mixing[:, list(staying.query)]

    def _neighbours(self) -> Groups:
        heads = self._task.heads
        starts = accumulate(heads.runs[:-1], initial=0)
        return [range(start, start + run) for start, run in zip(starts, heads.runs, strict=True)]

    def _sums_of(self, groups: Groups) -> MomentSums | None:
        """Of these groups, where any has several members; the original rows move on, and what the
        new attention should aim at is noted."""
        if not self._task.heads.is_merged:
            self._look(lambda _: iter(()), lambda _: None)
            return None
        sums = MomentSums(self._source, groups, self._task.text.white)
        self._look(lambda seen: sums.parts(*self._read(seen)), sums.take)
        return sums

    def _look(self, parts: Parts, take: Take) -> None:
        """Moves the original rows on, and notes what the new attention should aim at; `parts` gets
        what was seen of the attention in all rows but those that are held out, and `take` what it
        makes of that."""
        task, states, text = self._task, self._states, self._task.text
        if not task.shared.mine(text.batches[:1]):
            self._runner.called(self._first[0], self._target.run(*self._first).seen)

        def look(batch: slice) -> Iterable[torch.Tensor]:
            looked = self._target.run(batch, states.original[batch])
            seen = looked.seen
            assert looked.output is not None
            if not task.is_first:
                states.original[batch] = looked.output
            if batch in text.batches[: self._runner.learns]:
                self._runner.called(batch, seen)
            if task.is_fitted:
                states.target[batch] = looked.at_use
            if batch == text.fitted[0]:
                self._sample = given(seen), self._mixing(seen)
            return () if batch in text.held else parts(seen)

        def taken(batch: slice, made: Iterator[torch.Tensor]) -> None:
            if batch not in text.held:
                take(made)

        with assigned(task.layer, task.replaced):
            task.each(text.batches, look, taken)

    def _tempered(self, merged: Merged) -> AttentionWeights:
        """The merged weights with scores as sharp as before. Under a norm of queries a factor has
        no effect."""
        task, weights = self._task, merged.weights
        if not task.ladder.temperature or not task.freedom.keys:
            return weights
        weights, self._measured["temperature"] = task.shared.from_owner(
            task.text.fitted[0], lambda: self._sharpened(merged)
        )
        return task.here(weights)

    def _sharpened(self, merged: Merged) -> tuple[AttentionWeights, dict[str, Any]]:
        """The weights with the best temperatures, and what was measured of these."""
        weights, batch = merged.weights, self._task.text.fitted[0]
        assert self._sample is not None
        hidden, mixing = self._sample
        if mixing is None:
            mixing = self._runner.mixing(batch, hidden, self._source, merged)  # says what is wrong
        size = weights.group_size
        original = mixing[:, [h * size + i for h in merged.order for i in range(size)]]

        def divergence(scale: torch.Tensor) -> torch.Tensor:
            now = with_temperatures(weights, scale)
            return divergences(original, self._runner.mixing(batch, hidden, now, merged))

        scale = best_temperatures(divergence, len(weights.q), weights.q.device)
        before, after = divergence(torch.ones_like(scale)), divergence(scale)
        return with_temperatures(weights, scale), {
            "least": float(scale.min()),
            "most": float(scale.max()),
            "divergence": {"before": float(before.mean()), "after": float(after.mean())},
        }


def _stop(module: nn.Module, args: Any, output: Any) -> None:
    raise Stop


def _rounded(value: Any) -> Any:
    """Numbers to four digits: sums differ between processors."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value
