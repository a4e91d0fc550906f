"""A model that moves to another class of transformers, which computes the same function and holds
fewer K/V heads: from a pair of classes and a checkpoint to the steps of the converted one."""

from collections.abc import Iterator

from headcount.arch.rehoming import rehome_of
from headcount.arch.rehoming.rehome import OldConfig, Rehome
from headcount.arch.tensors.blocks import Blocks
from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import HeadTensors
from ..plan.errors import CannotConvertError, NoSuchHomeError
from ..plan.heads import Heads, HeadsByLayer, heads_of
from ..plan.pruning import KeptHeads
from ..plan.refusals.counts import check_rehomed, uniform
from ..plan.refusals.rehomed import (
    check_all_made,
    check_rehomed_layers,
    check_rehomed_tensors,
    counterpart,
    find_outside,
    in_layers,
)
from ..plan.refusals.types import REHOME, refuse
from ..plan.request import KeyValueHeads
from ..plan.source import ConversionSource
from ..plan.steps import (
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
from .home import Draft, Home
from .rehome_config import architecture, rehomed_config


def rehome(source: ConversionSource, wanted: KeyValueHeads, kept: KeptHeads) -> Home:
    """Raises CannotConvertError, and HeadCountError for a number that cannot be had."""
    if kept:
        raise NoSuchHomeError(
            f"{source.label}: pruned query heads are not taken to another class of transformers"
        )
    row = _fitting(source)
    refuse(source, REHOME)
    layers = {
        place: heads_of(mixer, check_rehomed(row, wanted, mixer.num_key_value_heads, source.label))
        for place, mixer in source.attention_map.mixers.items()
    }
    heads = HeadsByLayer(layers=layers)
    return Home(
        name="rehome",
        reason=row.reason,
        heads=heads,
        draft=lambda: _draft(row, source, uniform(heads)),
        config=lambda: rehomed_config(row, source, uniform(heads)),
    )


def _fitting(source: ConversionSource) -> Rehome:
    """The pair that holds the source's function exactly. Raises CannotConvertError that says why
    none does."""
    misfits = []
    for name in () if source.spelled is None else source.spelled.rehomes:
        row = rehome_of(name)
        misfit = row.fits(_old(source, row))
        if misfit is None:
            return row
        misfits.append(misfit)
    error = CannotConvertError if misfits else NoSuchHomeError
    reason = "; ".join(misfits) or "no other class computes its function"
    raise error(f"{source.label}: {reason}")


def _old(source: ConversionSource, row: Rehome) -> OldConfig:
    return OldConfig(source.config, source.model_type, row.defaults)


def _draft(row: Rehome, source: ConversionSource, own: Heads) -> Draft:
    """The steps of every file."""
    layers = tuple(layer.index for layer in source.audit.spec.layers)
    check_rehomed_tensors(source, row)
    drafting = _Drafting(row, source, own)
    check_rehomed_layers(source, row, drafting.in_layers, layers)
    steps = {
        header.path.name: tuple(s for tensor in header.tensors for s in drafting.steps(tensor))
        for header in source.checkpoint.files
    }
    written = {step.name for file in steps.values() for step in file}
    for layer in layers:
        for file, made in drafting.made_in(layer):
            if made.name not in written:
                steps[file] += (made,)
                written.add(made.name)
    check_all_made(source, row, written, layers)
    for file, made in drafting.made_outside(written):
        steps[file] += (made,)
    notes = tuple(note for key, note in row.notes.items() if source.config.get(key))
    return Draft(steps=steps, layers=layers, dropped=tuple(drafting.dropped), notes=notes)


class _Drafting:
    """One pass over the tensors, of which all are known and no layer lacks any."""

    def __init__(self, row: Rehome, source: ConversionSource, own: Heads) -> None:
        self.row, self.source, self.own = row, source, own
        self.in_layers = in_layers(source)
        self.dropped: list[Dropped] = []
        turned = row.turned
        self._turned = () if turned is None else turned(_old(source, row), own.head_dim)

    def steps(self, tensor: TensorInfo) -> Iterator[Step]:
        """The steps that stand where `tensor` stood."""
        standing = self.source.attention_map.standings.get(tensor.name)
        if standing is None or not standing.is_decoder:
            yield self._outside(tensor)
            return
        layer, inside = standing.at.number, standing.at.inside
        module, _, parameter = inside.rpartition(".")
        held = self.source.attention_map.by_name.get(tensor.name)
        if inside in self.row.dropped:
            self._drop(tensor, "a buffer, not a parameter")
        elif held is not None and held.has_query_key_value:
            yield from self._projected(held)
        elif module in self.row.folds.values():
            self._drop(tensor, "a norm, folded into the projections that read it")
        else:
            yield from self._kept(tensor, layer, module, parameter)

    def made_in(self, layer: int) -> Iterator[tuple[str, Step]]:
        """(file, step) of what the target has in a layer and the source may lack; next to its q."""
        anchor = self._holders(layer, "q", bias=False)[0].tensor
        for name, value in self.row.made.items():
            rows = self._rows(layer, name.rpartition(".")[0])
            new = self.row.new_layer.format(layer, name)
            yield anchor.file, make(new, anchor.dtype, (rows,), value)

    def made_outside(self, written: set[str]) -> Iterator[tuple[str, Step]]:
        """The same outside all layers."""
        is_headless = not architecture(self.row, self.source).endswith("ForCausalLM")
        for name, (value, like) in self.row.made_outside.items():
            if name in written or (is_headless and name.startswith("lm_head")):
                continue
            found = find_outside(self.source, like)
            yield found.file, make(name, found.dtype, found.shape[:1], value)

    def _outside(self, tensor: TensorInfo) -> Step:
        known = counterpart(self.row, tensor.name)
        assert known is not None
        old, new = known
        rows = self.row.skipped.get(old, 0)
        shape = (tensor.shape[0] - rows, *tensor.shape[1:])
        return computed(new, (tensor,), shape, Skip(rows=rows)) if rows else copy(tensor, new)

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
        norm, tensors = self.row.folds[module], self.in_layers
        weight, bias = tensors[layer, f"{module}.weight"], tensors.get((layer, f"{module}.bias"))
        yield "weight", "gain", (weight, tensors[layer, f"{norm}.weight"])
        shift = tensors.get((layer, f"{norm}.bias"))
        if shift is not None:
            yield "bias", "shift", (weight, shift, *(() if bias is None else (bias,)))

    def _projected(self, held: HeadTensors) -> Iterator[Step]:
        """What is made of a projection, or of several of which it is the first."""
        layer, module = held.place.index, held.module
        kind: Role
        if module in self.row.folds:
            if not held.is_bias:
                for kind, folded, sources in self._folded(layer, module):
                    for target, parts in self.row.takes.items():
                        yield self._part(target, parts, (held,), kind, sources, folded)
            return
        for target, parts in self.row.takes.items():
            holders = self._holders(layer, parts, bias=held.is_bias)
            if holders[0] is held:
                kind = "bias" if held.is_bias else "weight"
                yield self._part(target, parts, holders, kind, tuple(h.tensor for h in holders))

    def _part(
        self,
        target: str,
        parts: str,
        holders: tuple[HeadTensors, ...],
        kind: Role,
        sources: tuple[TensorInfo, ...],
        folded: Folded = "",
    ) -> Step:
        layout, own, layer = _joined(holders), self.own, holders[0].place.index
        name = self.row.new_layer.format(layer, f"{target}.{kind}")
        width = () if kind == "bias" else (sources[0].shape[0 if layout.axis else 1],)
        order = () if parts == "v" else self._turned
        if parts == "q":
            rows = layout.heads("q") * own.head_dim
            take = Take(source=layout, order=order, folded=folded)
            return computed(name, sources, (rows, *width), take)
        made = layout.pooled(own.members).only(parts)
        pool = Pool(
            layer=layer,
            role=kind,
            members=own.members,
            source=layout,
            target=made,
            order=order,
            folded=folded,
        )
        return computed(name, sources, (made.rows, *width), pool)

    def _holders(self, layer: int, parts: str, *, bias: bool) -> tuple[HeadTensors, ...]:
        """The projections that hold `parts`, in their order, each once."""
        held = self.source.attention_map.attentions[layer, False].projections
        of_kind = [one for one in held if one.is_bias == bias]
        names = dict.fromkeys(
            next(i for i, one in enumerate(of_kind) if part in one.parts) for part in parts
        )
        return tuple(of_kind[i] for i in names)

    def _rows(self, layer: int, module: str) -> int:
        """Length of a vector that is made for the target's `module`."""
        parts = self.row.takes.get(module)
        if parts is not None:
            layout = _joined(self._holders(layer, parts, bias=False))
            return layout.pooled(self.own.members).only(parts).rows
        old = next((name for name, new in self.row.kept.items() if new == module), module)
        weight = self.in_layers.get((layer, f"{old}.weight"))
        if weight is None:
            return self.source.audit.spec.hidden_size
        return weight.shape[-1] if old in self.row.transposed else weight.shape[0]

    def _drop(self, tensor: TensorInfo, reason: str) -> None:
        self.dropped.append(Dropped(source=tensor, reason=reason))


def _joined(holders: tuple[HeadTensors, ...]) -> Blocks:
    """How heads lie in tensors that are read as one."""
    layouts = [one.blocks for one in holders]
    if len(layouts) == 1:
        return layouts[0]
    return Blocks(blocks=tuple(block for layout in layouts for block in layout.blocks))
