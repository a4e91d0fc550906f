"""One file of the output from the steps that make it."""

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch

from ..plan.errors import BadValuesError
from ..plan.plan import ConversionPlan, OutputFile
from ..plan.steps import Cast, Copy, Pool, Step
from .ahead import Ahead
from .cast import cast, cast_pieces
from .heads import join_heads, split_heads
from .pool import (
    NotFiniteError,
    Pooled,
    central_heads,
    first_heads,
    pool_heads,
    random_heads,
    spread,
)
from .reader import DTYPES, SourceReader
from .writer import NewFile, header_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcome:
    """What was measured while pooling: (layer, part) -> relative error of its weight, and layer ->
    the heads that were kept, for methods that choose."""

    errors: dict[tuple[int, str], float] = field(default_factory=dict)
    chosen: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def since(self, before: "Outcome") -> "Outcome":
        """What was measured after `before` was copied."""
        return Outcome(
            errors={key: self.errors[key] for key in self.errors.keys() - before.errors.keys()},
            chosen={key: self.chosen[key] for key in self.chosen.keys() - before.chosen.keys()},
        )

    def copy(self) -> "Outcome":
        return Outcome(errors=dict(self.errors), chosen=dict(self.chosen))

    def add(self, other: "Outcome") -> None:
        self.errors.update(other.errors)
        self.chosen.update(other.chosen)

    def document(self) -> dict[str, Any]:
        """JSON-ready."""
        return {
            "errors": [[layer, part, error] for (layer, part), error in self.errors.items()],
            "chosen": [[layer, list(heads)] for layer, heads in self.chosen.items()],
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> "Outcome":
        return cls(
            errors={(layer, part): error for layer, part, error in document["errors"]},
            chosen={layer: tuple(heads) for layer, heads in document["chosen"]},
        )


class WeightStream:
    """Writes files step by step, while `pool` makes the tensors that come next. What these hold is
    bounded by the largest tensor."""

    def __init__(self, plan: ConversionPlan, reader: SourceReader, pool: Executor) -> None:
        self.plan = plan
        self.reader = reader
        self.pool = pool
        self.outcome = Outcome()
        self._weights = _weights_by_layer(plan.steps)
        self._choosing = Lock()
        self._budget = max((s.nbytes for step in plan.steps for s in step.sources), default=0)

    def write(self, file: OutputFile, out: NewFile) -> None:
        """Raises BadValuesError and HeadcountError; OSError is a failure to write."""
        out.write(header_bytes(file))
        computed = (s for s in file.steps if not isinstance(s.action, Copy | Cast))
        ahead = Ahead(self.pool, self._make, computed, self._budget)
        for steps in copy_runs(file.steps):
            ahead.begin()
            first, last = steps[0], steps[-1]
            source = first.sources[0]
            if isinstance(first.action, Copy):
                descriptor = self.reader.descriptor(source.file)
                out.copy(descriptor, source.offsets[0], last.sources[0].offsets[1])
            elif isinstance(first.action, Cast):
                with self._named(first):
                    for piece in cast_pieces(self.reader, source, DTYPES[first.dtype]):
                        out.write(_raw(piece))
            else:
                out.write(_raw(ahead.take()))
        self.reader.close()

    def _make(self, step: Step) -> torch.Tensor:
        tensor, dtype = self._compute(step), DTYPES[step.dtype]
        if tensor.dtype == dtype:
            return tensor
        with self._named(step):
            return cast(tensor, dtype)

    def _compute(self, step: Step) -> torch.Tensor:
        if not isinstance(step.action, Pool):
            return self.reader.tensor(step.sources[0]).T.contiguous()
        chosen = self._chosen(step.action.layer)
        tensors = [self.reader.tensor(source) for source in step.sources]
        tensor = tensors[0] if len(tensors) == 1 else torch.cat(tensors)
        with self._named(step):
            return self._pool(tensor, step.action, chosen)

    def _pool(
        self, tensor: torch.Tensor, action: Pool, chosen: tuple[int, ...] | None
    ) -> torch.Tensor:
        heads = split_heads(tensor, action.source)
        for part in heads.keys() - {"q"}:
            pooled = pool_heads(heads[part], action.members, _own(chosen, action, heads[part]))
            heads[part] = pooled.heads
            if action.role == "weight":
                self.outcome.errors[action.layer, part] = relative_error(pooled)
        return join_heads(heads, action.target)

    def _chosen(self, layer: int) -> tuple[int, ...] | None:
        """The heads that the layer keeps; None for the mean."""
        if self.plan.request.method == "mean":
            return None
        with self._choosing:
            if layer not in self.outcome.chosen:
                self.outcome.chosen[layer] = self._choose(layer)
            return self.outcome.chosen[layer]

    def _choose(self, layer: int) -> tuple[int, ...]:
        request, after = self.plan.request, self.plan.request.num_key_value_heads
        steps = self._weights[layer]
        members = _pool_action(steps[0]).members
        if request.method == "first":
            return first_heads(after, members)
        if request.method == "random":
            return random_heads(after, members, seed=request.seed, layer=layer)
        return central_heads([shares for step in steps for shares in self._spreads(step)])

    def _spreads(self, step: Step) -> Iterator[torch.Tensor]:
        """The `spread` of the K and V heads in a weight, which is read once more to be pooled."""
        action = _pool_action(step)
        heads = split_heads(self.reader.tensor(step.sources[0], keep=True), action.source)
        for part in sorted(heads.keys() - {"q"}):
            with self._named(step):
                yield spread(heads[part], action.members)

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


def _weights_by_layer(steps: Iterable[Step]) -> dict[int, list[Step]]:
    found: dict[int, list[Step]] = {}
    for step in steps:
        if isinstance(step.action, Pool) and step.action.role == "weight":
            found.setdefault(step.action.layer, []).append(step)
    return found


def _pool_action(step: Step) -> Pool:
    assert isinstance(step.action, Pool)
    return step.action


def _own(
    chosen: tuple[int, ...] | None, action: Pool, heads: torch.Tensor
) -> tuple[int, ...] | None:
    """The layer's choice as numbers of the heads in this tensor, which may hold one group only."""
    if chosen is None:
        return None
    first, count = action.first_head, heads.shape[0] // action.members
    return tuple(head - first * action.members for head in chosen[first : first + count])


def _raw(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied (numpy has no bfloat16, hence uint8)."""
    array: Any = tensor.flatten().view(torch.uint8).numpy()
    return memoryview(array)
