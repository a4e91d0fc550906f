"""Buffers of LoRA adapters on a rank: for each matrix that they may change, and each adapter that
is there at once, an A of [rank, columns] and a B of [rows, rank]."""

from collections.abc import Iterable, Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from headcount.arch.modules.module import Kind, Module
from headcount.model.errors import HeadcountError
from headcount.model.spec import ModelSpec

from ...budget import Term
from ...parallel import key_value_copies
from ...planned_model import PlannedModel
from .spread import Spread

LAYER_KINDS = frozenset({"attention", "recurrent", "mlp", "experts", "shared experts", "router"})
RECURRENT_ERROR = 0.25  # how their inputs are fused differs by version
_ROW_SPLIT = frozenset({"o", "down", "out"})  # ranks share their columns
_WHOLE = frozenset({"q_a", "kv_a", "router", "indexer", "latent"})
# What is loaded as one matrix has buffers for all its parts if one of them is asked for.
_PACKED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}


class LoraSizes(NamedTuple):
    """What decides a buffer's size on one of `tp` ranks: how many adapters of which rank, whether
    they are fully `sharded`, bytes of an `element`, and which matrices files hold as one: `fused`
    by the names that engines have for them, and gate and up of all experts (`grouped`)."""

    slots: int
    rank: int
    tp: int
    element: int
    sharded: bool = False
    fused: tuple[str, ...] = ()
    grouped: bool = False

    @property
    def each(self) -> int:
        """Bytes of a row or a column of all adapters."""
        return self.slots * self.rank * self.element


Buffer = tuple[Module, int, Fraction]  # a matrix, its pipeline stage, and bytes on a rank


def adapter_terms(
    buffers: Iterable[Buffer],
    sizes: LoraSizes,
    bars: Mapping[Kind, float],
    engine: str,
    stages: int,
) -> Iterator[Term]:
    """One for each of so many stages. `bars` are kinds of matrices, and the share of their buffers
    by which these may be off."""
    totals, unsure = [Fraction(0)] * stages, [0.0] * stages
    for module, stage, size in buffers:
        totals[stage] += size
        unsure[stage] += bars.get(module.kind, 0.0) * float(size)
    for total, error in zip(totals, unsure, strict=True):
        yield Term(
            key="adapters",
            title="LoRA adapters",
            bytes=ceil(total),
            formula=f"{sizes.slots} adapters of rank {sizes.rank} x rows and columns of every"
            f" matrix they may change{', of a rank' if sizes.tp > 1 else ''} x {sizes.element} B",
            source=f"shapes of {engine}'s buffers",
            error_bytes=ceil(error),
        )


def is_wanted(name: str, wanted: tuple[str, ...]) -> bool:
    """Whether a matrix of that name, or one that is loaded with it, is among those asked for."""
    packed = _PACKED.get(name)
    siblings = [part for part, whole in _PACKED.items() if whole == packed] if packed else []
    return any(each in wanted for each in (name, packed, *siblings))


def check_targets(model: PlannedModel, names: Iterable[str], wanted: tuple[str, ...]) -> None:
    """Raises HeadcountError where none of the matrices `names` is asked for: a slip, since such
    adapters would change nothing. A tied head is one by its name alone."""
    known = {*names, *(["lm_head"] if model.spec.tie_word_embeddings else [])}
    if wanted and not any(is_wanted(name, wanted) for name in known):
        raise HeadcountError(
            f"--lora-target-modules {','.join(wanted)}: {model.model_id} has no matrix of"
            f" that name; it has {', '.join(sorted(known))}"
        )


def head_copies(spec: ModelSpec, tp: int) -> int:
    """How many ranks have the same K/V head."""
    mixers = {mixer for layer in spec.layers for mixer in layer.mixers if mixer.num_key_value_heads}
    return max((key_value_copies(mixer, tp) for mixer in mixers), default=1)


def of_matrix(module: Module, sizes: LoraSizes, copies: int) -> Fraction:
    """Bytes of A and B of a matrix that is no expert's; `copies` ranks have the same K/V head."""
    tp, half = sizes.tp, sizes.tp if sizes.sharded else 1
    if module.part in _WHOLE:
        return Fraction(module.rows + module.columns) * sizes.each
    if module.part in _ROW_SPLIT:
        return (Fraction(module.columns, tp) + Fraction(module.rows, half)) * sizes.each
    rows = Fraction(module.rows * (copies if module.part in ("k", "v") else 1), tp)
    return (_inputs(module, sizes) / half + rows) * sizes.each


def _inputs(module: Module, sizes: LoraSizes) -> Fraction:
    """Columns of A: where files hold several matrices as one, an adapter has one A for all."""
    if module.part in ("gate", "up") and "gate_up_proj" in sizes.fused:
        return Fraction(module.columns, 2)
    if module.part in ("q", "k", "v") and "qkv_proj" in sizes.fused:
        return Fraction(module.columns, 3)
    return Fraction(module.columns)


def of_experts(module: Module, sizes: LoraSizes, spread: Spread) -> Fraction:
    """Each expert of a rank has its own."""
    shared, half = spread.experts_tp, spread.experts_tp if sizes.sharded else 1
    if module.part == "down":
        each = Fraction(module.columns, shared) + Fraction(module.rows, half)
    else:
        inputs = Fraction(module.columns, 2 if sizes.grouped else 1)
        each = inputs / half + Fraction(module.rows, shared)
    return each * module.copies * spread.experts * sizes.each
