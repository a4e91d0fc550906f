"""Matrices that tensor parallelism would cut where an engine cannot: amid a block or a group of
weights that share a scale, or into parts that are not equal.

The rules are vLLM's: validate_fp8_block_shape and validate_fp8_block_shape_moe of
model_executor/layers/quantization/utils/fp8_utils.py (in fp8.py until 0.10), the groups of
auto_awq.py, utils/marlin_utils.py and moe_wna16.py, `divide` of distributed/utils.py. SGLang's
fp8.py and awq.py took them over.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from headcount.arch.formats.format import Format
from headcount.arch.formats.of_configs import scheme_of
from headcount.arch.formats.scheme import Scheme
from headcount.arch.modules.module import Module
from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention
from headcount.model.spec import ModelSpec

from ...planned_model import PlannedModel, matrices_of

_BY_ROWS = frozenset({"q", "k", "v", "gate", "up", "q_b", "kv_b"})  # column parallel, in their word
_BY_COLUMNS = frozenset({"o", "down", "out"})  # row parallel
MERGED_ATTENTION = frozenset({"q", "k", "v"})  # run as one matrix
MERGED = MERGED_ATTENTION | {"gate", "up"}
_LINEAR = frozenset({"attention", "mlp", "shared experts", "recurrent"})
_UNCHECKED_EXPERTS = ("mxfp4", "nvfp4")  # padded, or cut all the same
_HALVES_GROUPS = ("awq", "gptq")  # of experts (moe_wna16.py)
_LEAST_SHARED = 32  # weights of experts that a scale is for after that, or in a refined block
_VOCABULARY_STEP = 64  # DEFAULT_VOCAB_PADDING_SIZE of vocab_parallel_embedding.py


@dataclass(frozen=True, kw_only=True, slots=True)
class CutRules:
    """What differs between engines and versions. `amid_blocks`: parts that may be cut amid a block
    of fp8; `refines_experts`: blocks of experts are cut to smaller ones, down to 32, that fit;
    `whole_experts`: experts are dealt to the ranks whole (expert parallelism); `expert_ranks` share
    one where they are not, None: those that share all else."""

    amid_blocks: frozenset[str] = frozenset()
    refines_experts: bool = False
    whole_experts: bool = False
    expert_ranks: int | None = None


class _Cut(NamedTuple):
    """A matrix that is dealt to so many ranks by its rows or its columns."""

    module: Module
    form: Format | None
    ways: int

    @property
    def by_rows(self) -> bool:
        return self.module.part in _BY_ROWS

    @property
    def size(self) -> int:
        return self.module.rows if self.by_rows else self.module.columns

    @property
    def other(self) -> int:
        """The side that is not cut."""
        return self.module.columns if self.by_rows else self.module.rows

    @property
    def each(self) -> int:
        return self.size // self.ways

    def text(self, what: str) -> str:
        return (
            f"{self.size:,} of {self.module.kind} / {self.ways} = {self.size / self.ways:g}{what}"
        )

    def between(self, count: int | None) -> str:
        """Of a cut that lies amid a block, or a group, of so many."""
        return self.text(f", no multiple of the {count} weights that share a scale")


def uneven_cuts(model: PlannedModel, tp: int, rules: CutRules) -> Iterator[str]:
    """Each size that cannot be cut, once; none for a model whose matrices are not known."""
    if max(tp, rules.expert_ranks or 1) == 1:
        return
    yield from _vocabulary(model.spec, tp)
    scheme, modules = _matrices(model)
    seen: set[str] = set()
    for module, form in modules:
        for text in _refused(module, form, scheme, model.spec, tp, rules):
            if text not in seen:
                seen.add(text)
                yield text


def _vocabulary(spec: ModelSpec, tp: int) -> Iterator[str]:
    padded = -(-(spec.vocab_size or 0) // _VOCABULARY_STEP) * _VOCABULARY_STEP
    if padded % tp:
        yield f"a vocabulary of {spec.vocab_size:,}, padded to {padded:,}, is not divisible by {tp}"


@lru_cache(maxsize=64)
def _matrices(
    model: PlannedModel,
) -> tuple[Scheme | None, tuple[tuple[Module, Format | None], ...]]:
    """Those of the layers, alike ones once, each with the format that the config gives it."""
    try:
        scheme = scheme_of(model.config)
        inventory = matrices_of(model)
    except HeadcountError:  # what is not understood is told where the weights are weighed
        return None, ()
    if inventory is None:
        return scheme, ()
    alike: dict[tuple[object, ...], tuple[Module, Format | None]] = {}
    for module in inventory.modules:
        form = scheme.choose(module, tuple(inventory.names(module))) if scheme else None
        key = (module.kind, module.part, module.rows, module.columns, form)
        alike.setdefault(key, (module, form))
    return scheme, tuple(alike.values())


def _refused(
    module: Module,
    form: Format | None,
    scheme: Scheme | None,
    spec: ModelSpec,
    tp: int,
    rules: CutRules,
) -> Iterator[str]:
    if module.part not in _BY_ROWS | _BY_COLUMNS:
        return
    if module.kind == "experts":
        if not rules.whole_experts:
            yield from _experts(_Cut(module, form, rules.expert_ranks or tp), scheme, rules)
    elif module.kind in _LINEAR:
        cut = _Cut(module, form, _ways(module, spec, tp))
        yield from _linear(cut, rules)


def _ways(module: Module, spec: ModelSpec, tp: int) -> int:
    """Into how many parts it is cut: keys and values into no more than there are heads, and one
    that all heads share not at all."""
    if module.part not in "kv":
        return tp
    heads = (
        mixer.num_key_value_heads
        for layer in spec.layers
        for mixer in layer.mixers
        if isinstance(mixer, Attention)
        and mixer.num_key_value_heads * mixer.head_dim == module.rows
    )
    return min(tp, next(heads, 1))


def _linear(cut: _Cut, rules: CutRules) -> Iterator[str]:
    form, group = cut.form, _group(cut.form)
    if cut.size % cut.ways:
        yield cut.text(", not a whole number")
    elif form is not None and form.block is not None:
        side = form.block[0 if cut.by_rows else 1]
        if cut.each % side and cut.module.part not in rules.amid_blocks:
            yield cut.between(side)
    elif group and not cut.by_rows and cut.each % group:
        yield cut.between(group)


def _group(form: Format | None) -> int | None:
    """Weights of a row that share a scale; None where that is not how it is cut."""
    return None if form is None or form.flat else form.group


def _experts(cut: _Cut, scheme: Scheme | None, rules: CutRules) -> Iterator[str]:
    form, group = cut.form, _group(cut.form)
    if cut.size % cut.ways:
        yield cut.text(", not a whole number")
    elif form is None or scheme is None or form.name in _UNCHECKED_EXPERTS:
        return
    elif form.block is not None:
        uneven = next((side for side in form.block if cut.each % side), None)
        if uneven and not (rules.refines_experts and _refined(cut, scheme)):
            yield cut.between(uneven)
    elif group and not cut.by_rows and cut.each % group and not _halved(group, cut, scheme):
        yield cut.between(group)


def _refined(cut: _Cut, scheme: Scheme) -> int | None:
    """The smaller block that fits; None where there is none."""
    assert cut.form is not None and cut.form.block is not None
    fine = gcd(*cut.form.block, cut.each, cut.other)
    return fine if scheme.name == "fp8" and fine >= _LEAST_SHARED else None


def _halved(group: int, cut: _Cut, scheme: Scheme) -> bool:
    """Whether groups are halved until they divide the cut."""
    while scheme.name in _HALVES_GROUPS and group >= _LEAST_SHARED:
        if cut.each % group == 0 and cut.other % group == 0:
            return True
        group //= 2
    return False


def refined_experts(model: PlannedModel, tp: int, rules: CutRules) -> str | None:
    """What becomes of the experts' blocks where they do not divide the cut; None where they do, or
    are not cut."""
    ranks = 1 if rules.whole_experts or not rules.refines_experts else rules.expert_ranks or tp
    scheme, modules = _matrices(model) if ranks > 1 else (None, ())
    for module, form in modules:
        cut = _Cut(module, form, ranks)
        if module.kind != "experts" or form is None or form.block is None or scheme is None:
            continue
        fine = _refined(cut, scheme)
        if fine and any(cut.each % side for side in form.block):
            return f"{cut.text('')}: their blocks of {form.block[0]} are cut to {fine}"
    return None
