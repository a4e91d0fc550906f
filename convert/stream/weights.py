"""One file of the output from the steps that make it."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from ..plan.errors import BadValuesError
from ..plan.plan import ConversionPlan, OutputFile
from ..plan.steps import Copy, Pad, Pool, Step
from .duplicates import Repeats, same_as_runs
from .heads import join_heads, placed_heads, split_heads
from .pool import (
    NotFiniteError,
    Pooled,
    central_heads,
    first_heads,
    pool_heads,
    random_heads,
    spread,
)
from .reader import SourceReader
from .writer import Advance, NewFile, header_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What was measured while pooling: (layer, part) -> relative error of its weight, layer -> the
    heads that were kept, for methods that choose, the layers of which any number changed, and the
    heads that are copies of others. Of a layer with two attentions the larger error."""

    errors: dict[tuple[int, str], float] = field(default_factory=dict)
    chosen: dict[int, tuple[int, ...]] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    repeats: Repeats = field(default_factory=Repeats)


class WeightStream:
    """Writes files step by step; holds at most the tensors of one layer's K and V."""

    def __init__(self, plan: ConversionPlan, reader: SourceReader, advance: Advance) -> None:
        self.plan = plan
        self.reader = reader
        self.advance = advance
        self.outcome = Outcome()
        self._weights = _weights_by_attention(plan.steps)
        self._choices: dict[tuple[int, bool], tuple[int, ...]] = {}

    def write(self, file: OutputFile, path: Path) -> None:
        """Raises BadValuesError and HeadcountError; OSError is a failure to write."""
        with NewFile(path, self.advance) as out:
            out.write(header_bytes(file))
            for steps in copy_runs(file.steps):
                first, last = steps[0], steps[-1]
                if isinstance(first.action, Copy):
                    source = first.sources[0]
                    descriptor = self.reader.descriptor(source.file)
                    out.copy(descriptor, source.offsets[0], last.sources[0].offsets[1])
                else:
                    out.write(_raw(self._compute(first)))
        self.reader.close((file.name,))

    def _compute(self, step: Step) -> torch.Tensor:
        if isinstance(step.action, Pad):
            return _padded(self.reader.tensor(step.sources[0]), step.action)
        if not isinstance(step.action, Pool):
            return self.reader.tensor(step.sources[0]).T.contiguous()
        chosen = self._chosen(step.action)
        tensors = [self.reader.tensor(source) for source in step.sources]
        tensor = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        with self._named(step):
            return self._pool(tensor, step.action, chosen)

    def _pool(
        self, tensor: torch.Tensor, action: Pool, chosen: tuple[int, ...] | None
    ) -> torch.Tensor:
        heads = split_heads(tensor, action.source)
        for part in heads.keys() - {"q"}:
            pooled = pool_heads(heads[part], action.sizes, _own(chosen, action))
            self._note(action, part, heads[part], pooled)
            heads[part] = pooled.heads
        if action.slots:
            heads["q"] = placed_heads(heads["q"], action.slots)
        return join_heads(heads, action.target)

    def _note(self, action: Pool, part: str, heads: torch.Tensor, pooled: Pooled) -> None:
        """What the outcome tells of one part of one tensor."""
        outcome = self.outcome
        if pooled.distance or not same_as_runs(heads, action.sizes, pooled.heads):
            outcome.moved.add(action.layer)
        if action.role == "weight":
            before = outcome.errors.get((action.layer, part), 0.0)
            outcome.errors[action.layer, part] = max(before, relative_error(pooled))
        if not action.first_head and (action.role == "weight" or len(heads) == self._heads(action)):
            outcome.repeats.see(action.layer, heads)

    def _heads(self, action: Pool) -> int:
        """K/V heads of the attention that the action is part of."""
        whole = _pool_action(self._weights[action.layer, action.cross][0])
        return sum(whole.sizes)

    def _chosen(self, action: Pool) -> tuple[int, ...] | None:
        """The heads that the action's attention keeps; None for the mean."""
        if self.plan.request.method == "mean":
            return None
        key = (action.layer, action.cross)
        if key not in self._choices:
            self._choices[key] = self._choose(*key)
            self.outcome.chosen.setdefault(action.layer, self._choices[key])
        return self._choices[key]

    def _choose(self, layer: int, cross: bool) -> tuple[int, ...]:
        request, steps = self.plan.request, self._weights[layer, cross]
        runs = _pool_action(steps[0]).sizes
        if request.method == "first":
            return first_heads(runs)
        if request.method == "random":
            return random_heads(runs, seed=request.seed, layer=layer)
        return central_heads([shares for step in steps for shares in self._spreads(step)])

    def _spreads(self, step: Step) -> Iterator[list[torch.Tensor]]:
        """The `spread` of the K and V heads in a weight, which is read once more to be pooled."""
        action = _pool_action(step)
        heads = split_heads(self.reader.tensor(step.sources[0], keep=True), action.source)
        for part in sorted(heads.keys() - {"q"}):
            with self._named(step):
                yield spread(heads[part], action.sizes)

    @contextmanager
    def _named(self, step: Step) -> Iterator[None]:
        """Numbers that are not finite become a BadValuesError that names file and tensor."""
        try:
            yield
        except NotFiniteError as error:
            source = step.sources[0]
            raise BadValuesError(
                f"{self.reader.folder / source.file}: tensor {source.name!r} {error};"
                " nothing was kept"
            ) from error


def copy_runs(steps: Iterable[Step]) -> Iterator[list[Step]]:
    """Neighbouring copies whose bytes adjoin in one source file go together; others go alone."""
    run: list[Step] = []
    for step in steps:
        if run and not _adjoins(run[-1], step):
            yield run
            run = []
        run.append(step)
    if run:
        yield run


def relative_error(pooled: Pooled) -> float:
    """|pooled - member| / |member| over all members (Frobenius norms), to four digits: norms are
    summed in an order that differs between processors."""
    return float(f"{pooled.distance / pooled.norm:.4g}") if pooled.norm else 0.0


def _adjoins(before: Step, after: Step) -> bool:
    if not (isinstance(before.action, Copy) and isinstance(after.action, Copy)):
        return False
    one, two = before.sources[0], after.sources[0]
    return one.file == two.file and one.offsets[1] == two.offsets[0]


def _weights_by_attention(steps: Iterable[Step]) -> dict[tuple[int, bool], list[Step]]:
    found: dict[tuple[int, bool], list[Step]] = {}
    for step in steps:
        if isinstance(step.action, Pool) and step.action.role == "weight":
            found.setdefault((step.action.layer, step.action.cross), []).append(step)
    return found


def _padded(tensor: torch.Tensor, action: Pad) -> torch.Tensor:
    """The one part of `tensor` with its heads at their new places."""
    (block,) = action.source.blocks
    heads = placed_heads(split_heads(tensor, action.source)[block.part], action.slots)
    layout = replace(action.source, blocks=(replace(block, heads=len(action.slots)),))
    return join_heads({block.part: heads}, layout)


def _pool_action(step: Step) -> Pool:
    assert isinstance(step.action, Pool)
    return step.action


def _own(chosen: tuple[int, ...] | None, action: Pool) -> tuple[int, ...] | None:
    """The layer's choice as numbers of the heads in this tensor, which may hold one run only."""
    if chosen is None:
        return None
    first, count = action.first_head, len(action.sizes)
    return tuple(head - first * action.members for head in chosen[first : first + count])


def _raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied (numpy has no bfloat16, hence uint8)."""
    array: Any = tensor.flatten().view(torch.uint8).numpy()
    return memoryview(array)
