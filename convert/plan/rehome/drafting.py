"""From a row and a checkpoint to the steps of the converted one."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from headcount.sources.safetensors import TensorInfo

from ..draft import Draft, Heads
from ..errors import CannotConvertError
from ..layout import Blocks
from ..native import FLOATS
from ..source import Source
from ..steps import (
    Dropped,
    Fold,
    Folded,
    Pool,
    Role,
    Skip,
    Step,
    Take,
    computed,
    copy,
    make,
    transpose,
)
from .config import architecture
from .row import OldConfig, Projection, Rehome

_PARAMETERS = ("weight", "bias")


def draft(row: Rehome, source: Source, heads: Heads) -> Draft:
    """The steps of every file. Raises CannotConvertError naming what has no counterpart."""
    drafting = _Drafting(row, source, heads)
    steps = {
        header.path.name: tuple(s for tensor in header.tensors for s in drafting.steps(tensor))
        for header in source.checkpoint.files
    }
    for step in (step for file in steps.values() for step in file):
        drafting.written.add(step.name)
    for file, made in drafting.made_steps():
        steps[file] += (made,)
        drafting.written.add(made.name)
    notes = tuple(note for key, note in row.notes.items() if source.config.get(key))
    return Draft(
        steps=steps, layers=drafting.layers(), dropped=tuple(drafting.dropped), notes=notes
    )


class _Drafting:
    """One pass over the tensors; what was seen decides what has to be made."""

    def __init__(self, row: Rehome, source: Source, heads: Heads) -> None:
        self.row = row
        self.source = source
        self.heads = heads
        self.old = OldConfig(source, row.defaults)
        self.dropped: list[Dropped] = []
        self.written: set[str] = set()

    @cached_property
    def in_layers(self) -> Mapping[tuple[int, str], TensorInfo]:
        """(layer, name in it) -> tensor."""
        places = ((self._place(t), t) for t in self.source.checkpoint.tensors.values())
        return {place: tensor for place, tensor in places if place is not None}

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        """The steps that stand where `tensor` stood."""
        place = self._place(tensor)
        if place is None:
            yield self._outside(tensor)
            return
        layer, inside = place
        if inside in self.row.dropped:
            self._drop(tensor, "a buffer, not a parameter")
            return
        if tensor.dtype not in FLOATS:
            raise self._unknown(tensor, f"({tensor.dtype}) looks quantised")
        module, _, parameter = inside.rpartition(".")
        projection = self._projection_of(module)
        if parameter not in _PARAMETERS:
            raise self._unknown(tensor, f"has no counterpart in {self.row.target}")
        if projection is not None:
            if module == projection.sources[0]:
                yield from self._projected(projection, layer, parameter)
        elif module in self.row.folds.values():
            self._drop(tensor, "a norm, folded into the projections that read it")
        elif module in self.row.kept:
            yield from self._kept(tensor, layer, module, parameter)
        else:
            raise self._unknown(tensor, f"has no counterpart in {self.row.target}")

    def made_steps(self) -> Iterator[tuple[str, Step]]:
        """(file, step) of what the target has and the source has not; next to the layer's rest."""
        for layer in self.layers():
            anchor = self._weight(layer, self.row.projections[0].sources[0])
            for name, value in self.row.made.items():
                new = self.row.new_layer.format(layer, name)
                if new not in self.written:
                    rows = self._rows(layer, name.rpartition(".")[0])
                    yield anchor.file, make(new, anchor.dtype, (rows,), value)
            self._check_layer(layer)
        is_headless = not architecture(self.row, self.source).endswith("ForCausalLM")
        for name, (value, like) in self.row.made_outside.items():
            if name in self.written or (is_headless and name.startswith("lm_head")):
                continue
            found = self._find_outside(like)
            yield found.file, make(name, found.dtype, found.shape[:1], value)

    def layers(self) -> tuple[int, ...]:
        return tuple(layer.index for layer in self.source.audit.spec.layers)

    def _outside(self, tensor: TensorInfo) -> Step:
        for old, new in self.row.outside.items():
            if tensor.name == old or tensor.name.endswith("." + old):
                rows = self.row.skipped.get(old, 0)
                shape = (tensor.shape[0] - rows, *tensor.shape[1:])
                return (
                    computed(new, (tensor,), shape, Skip(rows=rows)) if rows else copy(tensor, new)
                )
        raise self._unknown(tensor, f"has no counterpart in {self.row.target}")

    def _kept(self, tensor: TensorInfo, layer: int, module: str, parameter: str) -> Iterator[Step]:
        new = self.row.new_layer.format(layer, self.row.kept[module])
        if module in self.row.folds:
            if parameter == "weight":
                for kind, folded, sources in self._folded(layer, module):
                    shape = tensor.shape if kind == "weight" else tensor.shape[:1]
                    yield computed(f"{new}.{kind}", sources, shape, Fold(folded=folded))
        elif module in self.row.transposed and parameter == "weight":
            yield transpose(tensor, f"{new}.{parameter}")
        else:
            yield copy(tensor, f"{new}.{parameter}")

    def _folded(
        self, layer: int, module: str
    ) -> Iterator[tuple[Role, Folded, tuple[TensorInfo, ...]]]:
        """Weight and bias of a projection that takes up the norm in front of it: their sources."""
        norm = self.row.folds[module]
        weight, bias = self._weight(layer, module), self.in_layers.get((layer, f"{module}.bias"))
        yield "weight", "gain", (weight, self._weight(layer, norm))
        shift = self.in_layers.get((layer, f"{norm}.bias"))
        if shift is not None:
            yield "bias", "shift", (weight, shift, *(() if bias is None else (bias,)))

    def _projected(self, projection: Projection, layer: int, parameter: str) -> Iterator[Step]:
        module = projection.sources[0]
        if module not in self.row.folds:
            names = [f"{source}.{parameter}" for source in projection.sources]
            sources = tuple(self._tensor(layer, name) for name in names)
            yield from self._parts(projection, layer, parameter, "", sources)
        elif parameter == "weight":
            for kind, folded, sources in self._folded(layer, module):
                yield from self._parts(projection, layer, kind, folded, sources)

    def _parts(
        self,
        projection: Projection,
        layer: int,
        kind: str,
        folded: Folded,
        sources: tuple[TensorInfo, ...],
    ) -> Iterator[Step]:
        layout = projection.layout(self.heads)
        self._check_rows(layout, sources, folded)
        width = () if kind == "bias" else (_width(sources[0], layout),)
        turned = () if projection.turned is None else projection.turned(self.old, self.heads)
        for module, parts in projection.takes.items():
            name = self.row.new_layer.format(layer, f"{module}.{kind}")
            if parts == "q":
                rows = layout.heads("q") * self.heads.head_dim
                take = Take(source=layout, order=turned, folded=folded)
                yield computed(name, sources, (rows, *width), take)
                continue
            target = layout.pooled(self.heads.members).only(parts)
            pool = Pool(
                layer=layer,
                role="bias" if kind == "bias" else "weight",
                members=self.heads.members,
                source=layout,
                target=target,
                order=turned,
                folded=folded,
            )
            yield computed(name, sources, (target.rows, *width), pool)

    def _check_rows(self, layout: Blocks, sources: tuple[TensorInfo, ...], folded: Folded) -> None:
        held = sources[:1] if folded else sources
        if sum(source.shape[layout.axis] for source in held) != layout.rows:
            raise self._unknown(
                sources[0], f"has shape {list(sources[0].shape)}; {layout.rows} rows were expected"
            )

    def _rows(self, layer: int, module: str) -> int:
        """Length of a vector that is made for the target's `module`."""
        for projection in self.row.projections:
            parts = projection.takes.get(module)
            if parts is not None:
                return projection.layout(self.heads).pooled(self.heads.members).only(parts).rows
        old = next((name for name, new in self.row.kept.items() if new == module), module)
        weight = self.in_layers.get((layer, f"{old}.weight"))
        if weight is None:
            return self.source.audit.spec.hidden_size
        return weight.shape[-1] if old in self.row.transposed else weight.shape[0]

    def _projection_of(self, module: str) -> Projection | None:
        found = (p for p in self.row.projections if module in p.sources)
        return next(found, None)

    def _place(self, tensor: TensorInfo) -> tuple[int, str] | None:
        standing = self.source.standings.get(tensor.name)
        match = self.row.layer.search(tensor.name)
        if match is None or standing is None or not standing.is_decoder:
            return None
        return int(match[1]), match[2]

    def _weight(self, layer: int, module: str) -> TensorInfo:
        return self._tensor(layer, f"{module}.weight")

    def _tensor(self, layer: int, inside: str) -> TensorInfo:
        found = self.in_layers.get((layer, inside))
        if found is None:
            raise CannotConvertError(
                f"{self.source.folder}: layer {layer} has no {inside}: the checkpoint is incomplete"
            )
        return found

    def _find_outside(self, name: str) -> TensorInfo:
        for tensor in self.source.checkpoint.tensors.values():
            if tensor.name == name or tensor.name.endswith("." + name):
                return tensor
        raise CannotConvertError(f"{self.source.folder}: no {name}: the checkpoint is incomplete")

    def _check_layer(self, layer: int) -> None:
        """Every module that any layer of the target has is there in this one, given or made."""
        modules = {*self.row.kept.values(), *(n for p in self.row.projections for n in p.takes)}
        for name in sorted(f"{module}.weight" for module in modules):
            names = [self.row.new_layer.format(index, name) for index in self.layers()]
            if name in self.row.made or self.written.isdisjoint(names):
                continue
            if self.row.new_layer.format(layer, name) not in self.written:
                raise CannotConvertError(
                    f"{self.source.folder}: layer {layer} has nothing to make {name} of: the"
                    " checkpoint is incomplete"
                )

    def _drop(self, tensor: TensorInfo, reason: str) -> None:
        self.dropped.append(Dropped(source=tensor, reason=reason))

    def _unknown(self, tensor: TensorInfo, what: str) -> CannotConvertError:
        return CannotConvertError(
            f"{self.source.folder / tensor.file}: tensor {tensor.name!r} {what}"
        )


def _width(tensor: TensorInfo, layout: Blocks) -> int:
    """The input size of a projection's weight."""
    return tensor.shape[1] if layout.axis == 0 else tensor.shape[0]
