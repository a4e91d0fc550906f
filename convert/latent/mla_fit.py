"""A layer whose attention becomes one of DeepSeek's class (MLA), fitted to text with the rungs of
the ladder: that class runs in its place in the source's layer.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import nn

from ..calibrate.attention_runner import AttentionRunner
from ..calibrate.gram import Gram
from ..calibrate.layer_fit import LayerFit
from ..calibrate.layer_hooks import SeenAttention
from ..calibrate.layer_task import FittedLayer, LayerTask, States, run_rows
from ..calibrate.layered_model import assign
from ..calibrate.mlp_fit import MlpFit, fitted_projection
from ..calibrate.placed import CPU, placed
from ..calibrate.reconstruct import Tying
from ..merge.attention_weights import AttentionWeights, Merged
from ..stream.threads import one_thread
from .decoupled import Decoupled, assumed_turns, decoupled, distances, mean_turns
from .latent_fit import merged_as, second_moment
from .made_layer import LATENT
from .mla_layer import mla_document, mla_tensors, small_scale
from .mla_names import attention_path
from .mla_shape import MlaShape

_FREE = ("query", "rotated", "down", "key", "value", "o")


@dataclass(frozen=True, kw_only=True, slots=True)
class MlaWeights(AttentionWeights):
    """A decoupled attention: see `Decoupled`. Its q, k and v are the source's, which nobody
    reads."""

    query: torch.Tensor
    rotated: torch.Tensor
    down: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


def mla_weights(like: AttentionWeights, made: Decoupled) -> MlaWeights:
    own = {field.name: getattr(like, field.name) for field in fields(AttentionWeights)}
    found = made.factors
    return MlaWeights(
        **own,
        query=made.query,
        rotated=made.rotated,
        down=found.down,
        key=found.key,
        value=found.value,
    )


class FreeMla:
    """Everything is free."""

    def free(self, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        return {name: getattr(weights, name).detach().clone() for name in _FREE}

    def tied(self, like: AttentionWeights, free: Mapping[str, torch.Tensor]) -> AttentionWeights:
        return replace(like, **free)


@dataclass(frozen=True, kw_only=True, slots=True)
class MlaTask(LayerTask):
    """Tensors are those of the output, and the layer has a module that they fit."""

    shape: MlaShape
    small: float

    def made(self, merged: Merged, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        prefix = attention_path(self.tensors)
        found = {f"{prefix}{name}": value for name, value in self.inside(weights).items()}
        (output,) = (one for one in self.tensors.projections if one.parts == ("o",))
        found[output.tensor.name] = weights.o.transpose(0, 1).flatten(1)
        return {name: value.detach().contiguous() for name, value in found.items()}

    def inside(self, weights: AttentionWeights) -> Mapping[str, torch.Tensor]:
        """By their paths in the attention, but for the output's."""
        assert isinstance(weights, MlaWeights)
        return mla_tensors(
            *(weights.query, weights.rotated, weights.down, weights.key, weights.value),
            self.shape,
            self.small,
        )

    def assign(self, made: Mapping[str, torch.Tensor]) -> None:
        prefix, attention = attention_path(self.tensors), self.place.attention
        own = {n.removeprefix(prefix): v for n, v in made.items() if n.startswith(prefix)}
        assign(self.layer.get_submodule(attention), own)


class MlaRunner(AttentionRunner):
    """DeepSeek's class, called as the source's was in its layer."""

    def as_called(self, other: AttentionRunner, task: MlaTask) -> None:
        self._call, self._fused, self._task = other._call, True, task

    def _inside(self, weights: AttentionWeights, merged: Merged) -> dict[str, torch.Tensor]:
        return dict(self._task.inside(weights))


class MlaFit(LayerFit):
    """Instead of heads that are merged, a latent and a shared key of `shape`."""

    def __init__(self, task: LayerTask, states: States, shape: MlaShape) -> None:
        super().__init__(task, states)
        self._shape = shape
        self._made: Decoupled | None = None
        self._small = 1.0

    def run(self, seed: int, *, is_last: bool) -> FittedLayer:
        merged = self._merged()
        with self._placed(), self._runner.fast():
            return self._fitted(merged, merged.weights, seed, is_last=is_last)

    def skip(
        self,
        tensors: Mapping[str, torch.Tensor],
        mlp: Mapping[str, torch.Tensor],
        *,
        is_last: bool,
    ) -> None:
        task, mine = self._task, self._task.shared.mine(self._task.text.batches)
        self._runner.called(self._first[0], self._target.run(*self._first).seen)
        run_rows(task.layer, task.calls, self._states.original, mine)
        if is_last:
            return
        tensors, mlp = task.here(tensors), task.here(mlp)
        with self._placed():
            self._task.assign(tensors)
            with self._runner.fast():
                last = fitted_projection(self._task, self._states)
                if last is not None:
                    MlpFit(self._task, self._states, last, is_last=False).skip(mlp)
                else:
                    run_rows(task.layer, task.calls, self._states.converted, mine)

    def _merged(self) -> Merged:
        inputs = Gram(self._source.k.shape[-1], device=self._task.device)
        away, rows = torch.zeros(()), 0

        def parts(seen: SeenAttention) -> Iterator[torch.Tensor]:
            assert seen.inputs is not None
            read, mixing = seen.inputs.flatten(0, 1), self._mixing(seen)
            yield torch.tensor(len(read))
            yield from inputs.parts(read)
            if mixing is not None:
                yield distances(mixing)

        def take(made: Iterator[torch.Tensor]) -> None:
            nonlocal rows, away
            rows += int(next(made))
            inputs.take(made)
            for apart in made:
                away = away + apart.cpu()

        self._look(parts, take)
        made, self._small = self._task.shared.from_main(
            lambda: self._decoupled(second_moment(inputs, rows, self._task.text.white), away)
        )
        self._made = found = self._task.here(made)
        return merged_as(mla_weights(self._source, found), found.factors)

    def _decoupled(self, second: torch.Tensor, away: torch.Tensor) -> tuple[Decoupled, float]:
        """By the second moment of what the attention reads, and how far away it looks: of each head
        by distance, or 0 where that is not known. With the scale of small latents."""
        frequencies = torch.tensor(self._shape.frequencies, dtype=torch.float64)
        turns = mean_turns(frequencies, away) if away.dim() else None
        with one_thread():
            found = decoupled(
                placed(self._source, CPU),
                self._task.freedom,
                second,
                assumed_turns(frequencies, len(self._source.q)) if turns is None else turns,
                self._shape.rank,
            )
        return found, small_scale(found.factors.down, second)

    @contextmanager
    def _placed(self) -> Iterator[None]:
        """Inside, the layer has an attention of DeepSeek's class in place of its own."""
        task, path = self._task, self._task.place.attention
        before, runner = task.layer.get_submodule(path), self._runner
        own = {field.name: getattr(task, field.name) for field in fields(LayerTask)}
        self._task = placed = MlaTask(**own, shape=self._shape, small=self._small)
        task.layer.set_submodule(path, _attention(before, self._source, self._shape))
        self._runner = found = MlaRunner(task.layer, task.place, task.tensors, task.read, None)
        found.as_called(runner, placed)
        try:
            yield
        finally:
            task.layer.set_submodule(path, before)
            self._task, self._runner = task, runner

    def _tying(self, merged: Merged) -> Tying:
        return FreeMla()

    def _document(self, merged: Merged) -> dict[str, Any]:
        assert self._made is not None
        return {LATENT: mla_document(self._made)}


def _attention(like: Any, weights: AttentionWeights, shape: MlaShape) -> nn.Module:
    """An attention of DeepSeek's class, run as `like` is."""
    from transformers import DeepseekV3Config
    from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3Attention

    heads, _, width = weights.q.shape
    config = DeepseekV3Config(
        hidden_size=width,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        q_lora_rank=None,
        kv_lora_rank=shape.rank,
        qk_rope_head_dim=shape.rotated,
        qk_nope_head_dim=shape.head_dim,
        v_head_dim=weights.v.shape[1],
    )
    config._attn_implementation = like.config._attn_implementation
    return DeepseekV3Attention(config, like.layer_idx).to(weights.q).eval()
