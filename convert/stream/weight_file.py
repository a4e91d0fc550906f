"""One file of the output from the steps that make it."""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from threading import RLock
from typing import Any

import torch

from headcount.sources.safetensors import TensorInfo

from ..plan.errors import BadValuesError
from ..plan.plan import ConversionPlan, OutputFile
from ..plan.request import CHOOSING
from ..plan.steps import (
    Cast,
    Copy,
    Fold,
    Folded,
    Make,
    Pad,
    Part,
    Pool,
    Scale,
    Skip,
    Step,
    Take,
    Transpose,
)
from .float_casts import Lost, cast, cast_pieces, lost
from .head_layout import ByPart, join_heads, placed_heads, reordered, split_heads
from .made_ahead import Ahead
from .norm_folding import fold_gain, fold_shift, scaled
from .outcome import Outcome
from .pooling import (
    NotFiniteError,
    Pooled,
    central_heads,
    first_heads,
    pool_heads,
    random_heads,
    spread,
)
from .reader import DTYPES, SourceReader
from .repeated_heads import same_as_runs
from .safetensors_header import header_bytes
from .writer import NewFile


class WeightStream:
    """Writes files step by step, while `pool` makes the tensors that come next. What these hold is
    bounded by the largest tensor."""

    def __init__(self, plan: ConversionPlan, reader: SourceReader, pool: Executor) -> None:
        self.plan = plan
        self.reader = reader
        self.pool = pool
        self.outcome = Outcome()
        self._weights = _weights_by_attention(plan.steps)
        self._choices: dict[tuple[int, bool], tuple[int, ...]] = {}
        self._uses = Counter(
            source.name
            for step in plan.steps
            if not isinstance(step.action, Copy | Cast)
            for source in step.sources
        )
        self._lock = RLock()  # for what is chosen, counted and noted
        self._budget = max((s.nbytes for step in plan.steps for s in step.sources), default=0)

    def pieces(self, step: Step) -> Iterator[memoryview]:
        """The bytes of one tensor of the output, where there is no hurry: nothing is made ahead.
        Raises what `write` raises."""
        if isinstance(step.action, Copy):
            yield from self.reader.pieces(step.sources[0])
        elif isinstance(step.action, Cast):
            yield from map(raw_bytes, self._cast(step))
        else:
            yield raw_bytes(self._make(step))

    def tensor(self, step: Step) -> torch.Tensor:
        """One tensor of the output as a whole. Raises what `write` raises."""
        if not isinstance(step.action, Copy | Cast):
            return self._make(step)
        found = self.reader.tensor(step.sources[0])
        with self._named(step):
            return cast(found, DTYPES[step.dtype])

    def _cast(self, step: Step) -> Iterator[torch.Tensor]:
        with self._named(step):
            for piece, found in cast_pieces(self.reader, step.sources[0], DTYPES[step.dtype]):
                self._note_lost(step, found)
                yield piece

    def write(self, file: OutputFile, out: NewFile) -> None:
        """Raises BadValuesError and HeadcountError; OSError is a failure to write."""
        header = header_bytes(file)
        out.divide((len(header), *(step.nbytes for step in file.steps)))
        out.write(header)
        computed = (s for s in file.steps if not isinstance(s.action, Copy | Cast))
        ahead = Ahead(self.pool, self._make, computed, self._budget)
        for steps in copy_runs(file.steps):
            ahead.begin()
            first, last = steps[0], steps[-1]
            if isinstance(first.action, Copy):
                source = first.sources[0]
                descriptor = self.reader.descriptor(source.file)
                out.copy(descriptor, source.offsets[0], last.sources[0].offsets[1])
            elif isinstance(first.action, Cast):
                for piece in self._cast(first):
                    out.write(raw_bytes(piece))
            else:
                out.write(raw_bytes(ahead.take()))
        self.reader.close()

    def digests(self, file: OutputFile) -> dict[str, str]:
        """Those of the tensors that were read to compute others, by their names in the source."""
        sources = (source for step in file.steps for source in step.sources)
        found = ((source, self.reader.digest(source)) for source in sources)
        return {source.name: digest for source, digest in found if digest is not None}

    def _make(self, step: Step) -> torch.Tensor:
        tensor, dtype = self._compute(step), DTYPES[step.dtype]
        if tensor.dtype == dtype:
            return tensor
        with self._named(step):
            result = cast(tensor, dtype)
        self._note_lost(step, lost(tensor, result))
        return result

    def _note_lost(self, step: Step, found: Lost) -> None:
        if any(found):
            with self._lock:
                before = self.outcome.lost.get(step.name, Lost())
                self.outcome.lost[step.name] = before.plus(found)

    def _compute(self, step: Step) -> torch.Tensor:
        match step.action:
            case Transpose():
                return self._read(step.sources[0]).T.contiguous()
            case Make(value=value):
                return torch.full(step.shape, value, dtype=DTYPES[step.dtype])
            case Skip(rows=rows):
                return self._read(step.sources[0])[rows:].contiguous()
            case Scale(factor=factor):
                return scaled(self._read(step.sources[0]), factor)
            case Fold(folded=folded):
                return self._joined(step, folded)
            case Take(source=layout, order=order, folded=folded):
                heads = split_heads(self._joined(step, folded), layout)["q"]
                return reordered(heads, order).flatten(0, 1).contiguous()
            case Part(source=layout, part=part):
                heads = split_heads(self._read(step.sources[0]), layout)[part]
                return heads.flatten(0, 1).contiguous()
            case Pad() as action:
                return _placed(self._read(step.sources[0]), action)
            case Pool() as action:
                return self._pool(step, action)
        raise AssertionError(step.action)

    def _pool(self, step: Step, action: Pool) -> torch.Tensor:
        chosen = self._chosen(action)
        heads = self._split(step, action)
        for part in action.pooled_parts:
            with self._named(step):
                pooled = pool_heads(heads[part], action.sizes, _own(chosen, action))
            with self._lock:
                self._note(action, part, heads[part], pooled)
            heads[part] = pooled.heads
        for part in heads.keys() - {"v"}:
            heads[part] = reordered(heads[part], action.order)
        if action.slots:
            heads["q"] = placed_heads(heads["q"], action.slots)
        return join_heads(heads, action.target)

    def _split(self, step: Step, action: Pool) -> ByPart:
        """The heads of the step's sources; those of K and V that are not pruned."""
        heads = split_heads(self._joined(step, action.folded), action.source)
        for part in action.pooled_parts if action.kept else ():
            heads[part] = heads[part][list(action.kept)]
        return heads

    def _joined(self, step: Step, folded: Folded) -> torch.Tensor:
        """The step's sources as one tensor, with a norm's part folded in if there is one."""
        tensors = [self._read(source) for source in step.sources]
        if folded == "gain":
            return fold_gain(tensors[0], tensors[1])
        if folded == "shift":
            return fold_shift(tensors[0], tensors[1], tensors[2] if len(tensors) > 2 else None)
        return tensors[0] if len(tensors) == 1 else torch.cat(tensors)

    def _read(self, source: TensorInfo) -> torch.Tensor:
        """A source tensor, which is kept until the last step that needs it."""
        with self._lock:
            self._uses[source.name] -= 1
            keep = self._uses[source.name] > 0
        return self.reader.tensor(source, keep=keep)

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
        """The heads that the action's attention keeps; None for a mean."""
        if self.plan.request.method not in CHOOSING:
            return None
        key = (action.layer, action.cross)
        with self._lock:
            if key not in self._choices:
                self._choices[key] = self._choose(*key)
                # Of two attentions the self-attention's, whichever thread comes first.
                if not action.cross or action.layer not in self.outcome.chosen:
                    chosen, kept = self._choices[key], action.kept
                    self.outcome.chosen[action.layer] = (
                        tuple(kept[head] for head in chosen) if kept else chosen
                    )
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
        with self._lock:
            self._uses.update(source.name for source in step.sources)
        heads = self._split(step, action)
        for part in sorted(action.pooled_parts):
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
                f"{self.reader.path(source.file)}: tensor {source.name!r} {error}; nothing was kept"
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


def _placed(tensor: torch.Tensor, action: Pad) -> torch.Tensor:
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


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The bytes of a contiguous tensor, not copied (numpy has no bfloat16, hence uint8)."""
    array: Any = tensor.flatten().view(torch.uint8).numpy()
    return memoryview(array)
