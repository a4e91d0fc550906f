"""What an engine's weights take on a rank: as loading makes them, by pipeline stage, with what an
engine puts on top of their stored bytes, such as its padding of experts."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from math import ceil
from typing import Literal

from headcount.arch.formats.of_configs import quantization_config
from headcount.model.errors import HeadcountError
from headcount.model.numbers import size

from ..budget import Loading, Term
from ..devices import Device
from ..planned_model import PlannedModel, narrowed
from ..request import Workload
from ..stage_bytes import stage_bytes
from ..stored import as_loaded, unquantised
from ..weights import Weights, plan_weights, rank_weights
from .added.spread import Spread, over_tp
from .layers import stages_of
from .loaded_table import LoadedTable

_ERROR = {"headers": 0.003, "parameters": 0.008, "quantised": 0.015}
_GIB = 2**30
_BUFFERS = 40 * 2**20  # bytes: what a model registers beside its parameters, such as a second table
_SOURCES = {
    "headers": "the files' headers",
    "parameters": "the config's count of parameters",
    "quantised": "the config's count of parameters and quantization_config",
}
_MXFP4_READ, _MXFP4_INNER, _MARLIN_INNER, _MXFP4_BITS = 256, 64, 128, 4.25
Mxfp4Kernel = Literal["triton", "triton rows", "marlin"]


def loaded_weights(model: PlannedModel, dtype: str | None, compute_dtype: str) -> Weights:
    """Layers that predict further tokens are loaded for speculation only."""
    return plan_weights(model, dtype, compute_dtype, with_prediction=False)


def stage_weights(
    model: PlannedModel,
    work: Workload,
    *tables: LoadedTable | None,
    stages: tuple[int, ...] | None = None,
    spread: Spread | None = None,
) -> Iterator[Term]:
    """The weights of a rank on each stage, of which `stages` has one a layer (None: as vLLM deals
    them): the input embedding is on the first stage and the output head on the last. `tables` are
    what else the engine puts on each rank. Without a `spread` tp shares everything. Raises
    HeadcountError where it asks for kinds that are not known apart."""
    weights, pp = work.weights, work.request.pp
    assert weights is not None  # only given K/V memory needs none, and then there is no budget
    spread = spread or over_tp(model, work)
    stages = stages or stages_of(work.request, len(model.spec.layers))
    whole, formula = rank_weights(model, weights, spread.tp)
    known = [table for table in tables if table is not None]
    words = [formula, spread.why, *(table.formula for table in known)]
    for stage, own in enumerate(_by_stage(model, work, whole, stages, spread)):
        yield Term(
            key="weights",
            title="Weights",
            bytes=own + sum(table.bytes for table in known),
            formula=" + ".join(word for word in words if word)
            + (f", stage {stage + 1} of {pp}" if pp > 1 else ""),
            source=_SOURCES[weights.source],
            error_bytes=max(_BUFFERS, ceil(own * _ERROR[weights.source])),
        )


def loaded_wide(
    model: PlannedModel,
    device: Device,
    work: Workload,
    beside: Term,
    *,
    stages: tuple[int, ...],
    spread: Spread,
) -> Iterator[Loading | None]:
    """What lies on a rank of each stage while an engine loads the whole model at 16 bit, to
    quantise it then, with what is `beside` them; None of files that are quantised already."""
    wide = unquantised(model)
    if wide is None or wide.spec.parameters is None:
        yield from (None for _ in range(work.request.pp))
        return
    wide = narrowed(wide)
    weights = loaded_weights(wide, None, work.compute_dtype)
    before = replace(work, dtype=None, weights=weights)
    moved = int((work.request.cpu_offload_gb or 0) * _GIB)
    for term in stage_weights(wide, before, stages=stages, spread=spread):
        peak = term._replace(
            key="loading",
            title="While loading",
            bytes=max(0, term.bytes - moved) + beside.bytes,
            formula=f"{term.formula} before they are quantised + {beside.formula}",
            error_bytes=term.error_bytes + beside.error_bytes,
        )
        yield Loading(peak=peak, room=device.usable_memory)


def _by_stage(
    model: PlannedModel, work: Workload, whole: int, stages: tuple[int, ...], spread: Spread
) -> Iterator[int]:
    """Bytes of a rank of each stage; `whole` are those of a rank that has all layers."""
    weights, pp = work.weights, work.request.pp
    assert weights is not None
    if pp == 1 and not spread.parts:
        yield whole
        return
    found = stage_bytes(model, work, stages)
    if found is None and spread.parts:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell which weights are those of experts or"
            " encoders, so what a rank has of them cannot be told"
        )
    end = _tied_head(model, weights, spread.tp) if pp > 1 else 0
    if found is None:
        yield from _evenly(model, weights, whole, stages, spread.tp)
        return
    for stage, kinds in enumerate(found):
        share = sum(kinds.values()) / max(1, weights.total_bytes)
        moved = sum(
            kinds.get(kind, 0) * (part - Fraction(1, spread.tp)) for kind, part in spread.parts
        )
        yield ceil(whole * share + moved) + end * (stage == pp - 1)


def _tied_head(model: PlannedModel, weights: Weights, tp: int) -> int:
    """Bytes of a second copy of the embedding, on the last of several stages, where it is the head
    as well."""
    return _vocabulary(model, weights, tp) if model.spec.tie_word_embeddings else 0


def _vocabulary(model: PlannedModel, weights: Weights, tp: int) -> int:
    spec = model.spec
    each = (spec.vocab_size or 0) * spec.hidden_size * weights.per_attention_parameter / tp
    return ceil(each)


def _evenly(
    model: PlannedModel, weights: Weights, whole: int, stages: tuple[int, ...], tp: int
) -> Iterator[int]:
    """By the number of layers, where nothing else is known."""
    end = _vocabulary(model, weights, tp)
    ends = min(whole, end * (1 if model.spec.tie_word_embeddings else 2))
    last = max(stages)
    for stage in range(last + 1):
        layers = (whole - ends) * stages.count(stage) // len(stages)
        yield layers + end * (stage in (0, last))


def padded_experts(
    model: PlannedModel, work: Workload, spread: Spread, kernel: Mxfp4Kernel = "triton"
) -> LoadedTable | None:
    """MXFP4 experts on a rank, as padded for their `kernel`: what a matrix reads to a multiple of
    256, the inner width of a rank to 64, with Marlin to 128; with Triton's newer kernels what it
    writes as well (vllm/model_executor/layers/quantization/mxfp4.py, and SGLang's; oracle/mxfp4.py
    of vLLM's layers/fused_moe in 0.19, where 13.64 GiB of gpt-oss-20b were measured)."""
    config, pp = as_loaded(model, work.dtype).config, work.request.pp
    tp = spread.experts_tp
    settings = quantization_config(config)
    if settings is None or settings.get("quant_method") != "mxfp4":
        return None
    names = ("hidden_size", "intermediate_size", "num_local_experts", "num_hidden_layers")
    sizes = [found for name in names if (found := size(config.get(name)))]
    if len(sizes) != len(names):
        return None
    hidden, intermediate, experts, layers = sizes
    wide, inner = _padded(hidden, _MXFP4_READ), intermediate / tp
    own = _padded(ceil(inner), _MARLIN_INNER if kernel == "marlin" else _MXFP4_INNER)
    kept = 3 * wide * own
    if kernel == "triton rows":
        kept = _padded(2 * own, _MXFP4_READ) * wide + hidden * _padded(own, _MXFP4_READ)
    elements = layers * experts * spread.experts * (kept - 3 * hidden * inner) / pp
    if elements <= 0:
        return None
    return LoadedTable(
        bytes=int(elements * _MXFP4_BITS / 8),
        formula=f"MXFP4 experts padded from {hidden:,} x {intermediate:,} for {kernel}",
    )


def _padded(size: int, multiple: int) -> int:
    return size + -size % multiple
