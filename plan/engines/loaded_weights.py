"""What an engine's weights take on a rank: as loading makes them, by pipeline stage, with what an
engine puts on top of their stored bytes, such as its padding of experts."""

from collections.abc import Iterator
from math import ceil
from typing import Literal

from headcount.arch.formats.of_configs import quantization_config
from headcount.model.numbers import size

from ..budget import Term
from ..planned_model import PlannedModel
from ..request import Workload
from ..stored import as_loaded
from ..weights import Weights, plan_weights, rank_weights
from .loaded_table import LoadedTable

_ERROR = {"headers": 0.003, "parameters": 0.008, "quantised": 0.015}
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
    model: PlannedModel, work: Workload, *tables: LoadedTable | None
) -> Iterator[Term]:
    """The weights of a rank on each stage: layers evenly, the input embedding on the first stage
    and the output head on the last. `tables` are what else the engine puts on each rank."""
    weights, request = work.weights, work.request
    assert weights is not None  # only given K/V memory needs none, and then there is no budget
    spec, pp = model.spec, request.pp
    whole, formula = rank_weights(model, weights, request.tp)
    known = [table for table in tables if table is not None]
    each = (spec.vocab_size or 0) * spec.hidden_size * weights.per_attention_parameter / request.tp
    end = ceil(each)
    ends = min(whole, end * (1 if spec.tie_word_embeddings else 2))
    for stage in range(pp):
        own = whole if pp == 1 else (whole - ends) // pp + end * (stage in (0, pp - 1))
        yield Term(
            key="weights",
            title="Weights",
            bytes=own + sum(table.bytes for table in known),
            formula=" + ".join([formula, *(table.formula for table in known)])
            + (f", stage {stage + 1} of {pp}" if pp > 1 else ""),
            source=_SOURCES[weights.source],
            error_bytes=max(_BUFFERS, ceil(own * _ERROR[weights.source])),
        )


def padded_experts(
    model: PlannedModel, work: Workload, kernel: Mxfp4Kernel = "triton"
) -> LoadedTable | None:
    """MXFP4 experts on a rank, as padded for their `kernel`: what a matrix reads to a multiple of
    256; with Marlin the inner width to 128; with Triton's newer kernels what it writes as well, of
    inner widths in 64 (vllm/model_executor/layers/quantization/mxfp4.py; oracle/mxfp4.py of
    layers/fused_moe in 0.19, where 13.64 GiB of gpt-oss-20b were measured)."""
    config, tp, pp = as_loaded(model, work.dtype).config, work.request.tp, work.request.pp
    settings = quantization_config(config)
    if settings is None or settings.get("quant_method") != "mxfp4":
        return None
    names = ("hidden_size", "intermediate_size", "num_local_experts", "num_hidden_layers")
    sizes = [found for name in names if (found := size(config.get(name)))]
    if len(sizes) != len(names):
        return None
    hidden, intermediate, experts, layers = sizes
    wide, inner = _padded(hidden, _MXFP4_READ), intermediate / tp
    if kernel == "triton rows":
        own = _padded(ceil(inner), _MXFP4_INNER)
        kept = _padded(2 * own, _MXFP4_READ) * wide + hidden * _padded(own, _MXFP4_READ)
    else:
        step = _MARLIN_INNER if kernel == "marlin" else 1
        kept = 3 * wide * _padded(intermediate, step) // tp
    elements = layers * experts * (kept - 3 * hidden * inner) / pp
    if elements <= 0:
        return None
    return LoadedTable(
        bytes=int(elements * _MXFP4_BITS / 8),
        formula=f"MXFP4 experts padded from {hidden:,} x {intermediate:,} for {kernel}",
    )


def _padded(size: int, multiple: int) -> int:
    return size + -size % multiple
