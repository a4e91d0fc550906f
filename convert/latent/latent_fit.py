"""A layer whose keys and values are rebuilt from a latent, fitted to text with the rungs of the
ladder: the source's own class runs with the dense matrices that the factors make.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from ..attention_map.attention_tensors import HeadTensors
from ..calibrate.gram import Gram
from ..calibrate.layer_fit import LayerFit
from ..calibrate.layer_hooks import SeenAttention
from ..calibrate.layer_task import LayerTask, States
from ..calibrate.placed import CPU, placed
from ..calibrate.reconstruct import Tying
from ..calibrate.state_rows import NotFiniteStatesError
from ..merge.attention_weights import AttentionWeights, Merged
from ..merge.head_moments import with_white
from ..stream.head_layout import join_heads, split_heads
from ..stream.threads import one_thread
from .factors import Factors, low_rank
from .made_layer import LATENT, latent_document
from .names import down_name, factor_tensors, key_value_tensors, part_name

_FACTORS = ("down", "key", "value")


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentWeights(AttentionWeights):
    """An attention whose k and v are products of factors: see `Factors`."""

    down: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


def latent_weights(
    like: AttentionWeights, down: torch.Tensor, key: torch.Tensor, value: torch.Tensor
) -> LatentWeights:
    """`like` with keys and values of these factors; differentiable."""
    own = {field.name: getattr(like, field.name) for field in fields(AttentionWeights)}
    return LatentWeights(
        **{**own, "k": key @ down, "v": value @ down}, down=down, key=key, value=value
    )


def merged_as(weights: AttentionWeights, found: Factors) -> Merged:
    """The weights with all heads in their places. Of the mean of heads nothing is known."""
    heads = len(weights.k)
    return Merged(
        weights=weights,
        order=tuple(range(heads)),
        groups=(1,) * heads,
        key_error=found.key_error,
        value_error=found.value_error,
        key_mean_error=1.0,
        value_mean_error=1.0,
    )


def second_moment(inputs: Gram, rows: int, white: float) -> torch.Tensor:
    """[E, E]: the mean over `rows` tokens of the sums `inputs`, and `white` times its trace of
    white inputs, on the CPU. Raises NotFiniteStatesError."""
    second = inputs.result().cpu() / rows
    if not bool(second.isfinite().all()):
        raise NotFiniteStatesError
    return with_white(second, torch.eye(len(second)).to(second), white)


class TiedFactors:
    """Of the keys and values the factors are free, of the rest every tensor that is there."""

    def free(self, weights: AttentionWeights) -> dict[str, torch.Tensor]:
        there = {f.name: getattr(weights, f.name) for f in fields(weights)}
        return {
            name: value.detach().clone()
            for name, value in there.items()
            if value is not None and name not in ("k", "v")
        }

    def tied(self, like: AttentionWeights, free: Mapping[str, torch.Tensor]) -> AttentionWeights:
        others = {name: value for name, value in free.items() if name not in _FACTORS}
        return latent_weights(replace(like, **others), *(free[name] for name in _FACTORS))


class LatentFit(LayerFit):
    """Instead of heads that are merged, keys and values of a latent of `rank`."""

    def __init__(self, task: LayerTask, states: States, rank: int) -> None:
        super().__init__(task, states)
        self._rank = rank
        self._factors: Factors | None = None

    def _merged(self) -> Merged:
        task, source = self._task, placed(self._source, CPU)
        inputs, rows = Gram(source.k.shape[-1], device=task.device), 0

        def parts(seen: SeenAttention) -> Iterator[torch.Tensor]:
            assert seen.inputs is not None
            read = seen.inputs.flatten(0, 1)
            yield torch.tensor(len(read))
            yield from inputs.parts(read)

        def take(made: Iterator[torch.Tensor]) -> None:
            nonlocal rows
            rows += int(next(made))
            inputs.take(made)

        def factors() -> Factors:
            second = second_moment(inputs, rows, task.text.white)
            with one_thread():
                return low_rank(source, task.freedom, second, self._rank)

        self._look(parts, take)
        found = self._factors = task.here(task.shared.from_main(factors))
        return merged_as(latent_weights(self._source, found.down, found.key, found.value), found)

    def _tying(self, merged: Merged) -> Tying:
        return TiedFactors()

    def _document(self, merged: Merged) -> dict[str, Any]:
        assert self._factors is not None
        return {LATENT: latent_document(self._factors)}

    def _written(
        self, attention: Mapping[str, torch.Tensor], weights: AttentionWeights
    ) -> Mapping[str, torch.Tensor]:
        """The factors and, where more was fitted, all that was: the parts of a fused projection
        by themselves."""
        assert isinstance(weights, LatentWeights) and self._factors is not None
        task = self._task
        found = replace(self._factors, down=weights.down, key=weights.key, value=weights.value)
        made = dict(factor_tensors(task.tensors, found))
        if not task.is_fitted:
            return made
        for held in task.tensors.projections:
            for part, heads in split_heads(attention[held.tensor.name], held.blocks).items():
                if len(held.parts) == 1:
                    made.setdefault(held.tensor.name, attention[held.tensor.name])
                else:
                    made.setdefault(part_name(held, part), heads.flatten(0, 1).contiguous())
        bias = task.tensors.output_bias
        return made if bias is None else {**made, bias.name: attention[bias.name]}

    def _as_source(self, tensors: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        """The dense tensors that the run which wrote `tensors` has assigned, to the last bit."""
        own = self._task.tensors
        down = next(
            tensors[down_name(held)] for held in key_value_tensors(own) if "k" in held.parts
        )
        made = {n: value for n, value in tensors.items() if n in self._task.place.names}
        for held in own.projections:
            if len(held.parts) == 1 and held not in key_value_tensors(own):
                continue
            heads = {}
            for part in held.parts:
                value = self._part(tensors, held, part)
                is_factor = part in ("k", "v") and not held.is_bias
                heads[part] = value @ down if is_factor else value
            made[held.tensor.name] = join_heads(heads, held.blocks)
        return made

    def _part(
        self, tensors: Mapping[str, torch.Tensor], held: HeadTensors, part: str
    ) -> torch.Tensor:
        """[heads, rows, ...] of a part, as it was written, or as the source has it."""
        name = part_name(held, part)
        if name not in tensors:
            return split_heads(self._task.read(held.tensor), held.blocks)[part]
        found: torch.Tensor = tensors[name].unflatten(0, (held.blocks.heads(part), -1))
        return found
