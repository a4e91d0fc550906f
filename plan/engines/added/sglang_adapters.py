"""What LoRA adapters take in SGLang: buffers of the modules that --lora-target-modules names.

They are made after the model and before the pools, for --max-loras-per-batch adapters (8) of
--max-lora-rank each (LoRAMemoryPool of sglang/srt/lora/mem_pool.py of 0.5.23). A of the embedding
and of the head, and B of the embedding, are whole on every rank, B of the head is split.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from headcount.arch.modules.module import Kind
from headcount.model.errors import HeadcountError

from ...budget import Term
from ...planned_model import PlannedModel, matrices_of
from ...request import PlanRequest, Workload
from ..launch import option
from .adapters import (
    LAYER_KINDS,
    RECURRENT_ERROR,
    Buffer,
    LoraSizes,
    adapter_terms,
    check_targets,
    head_copies,
    is_wanted,
    of_experts,
    of_matrix,
)
from .spread import Spread

_SLOTS = 8
_ALL = "all"
_EXPERTS_ERROR = 0.1  # buffers are made for every layer, also where one has no experts
_KINDS = LAYER_KINDS - {"router"}


def sglang_adapters(
    model: PlannedModel, work: Workload, stages: tuple[int, ...], spread: Spread
) -> Iterator[Term]:
    """One for each pipeline stage; none without adapters. Raises HeadcountError where shapes are
    not known."""
    request = work.request
    if not request.enable_lora:
        return
    sizes = LoraSizes(
        slots=request.max_loras or _SLOTS,
        rank=request.max_lora_rank or 0,
        tp=request.tp,
        element=ceil(work.compute_bits / 8),
    )
    buffers = _buffers(model, work, sizes, stages, spread)
    bars: dict[Kind, float] = {"recurrent": RECURRENT_ERROR, "experts": _EXPERTS_ERROR}
    yield from adapter_terms(buffers, sizes, bars, "SGLang", max(stages) + 1)


def _buffers(
    model: PlannedModel,
    work: Workload,
    sizes: LoraSizes,
    stages: tuple[int, ...],
    spread: Spread,
) -> Iterator[Buffer]:
    spec, wanted = model.spec, work.request.lora_target_modules or ()
    found = matrices_of(model)
    if found is None:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell the shapes of the matrices that adapters"
            " change"
        )
    at = {layer.stored_as: stage for layer, stage in zip(spec.layers, stages, strict=True)}
    copies = head_copies(spec, sizes.tp)
    names = (module.name.rpartition(".")[2] for module in found.modules)
    check_targets(model, names, () if wanted == (_ALL,) else wanted)
    for module in found.modules:
        if wanted != (_ALL,) and not is_wanted(module.name.rpartition(".")[2], wanted):
            continue
        stage = at.get(module.layer or 0, 0)
        if module.kind == "experts":
            yield module, stage, of_experts(module, sizes, spread)
        elif module.kind in _KINDS and module.layer is not None:
            yield module, stage, of_matrix(module, sizes, copies)
        elif module.kind == "embedding":
            yield module, 0, Fraction(module.rows + module.columns) * sizes.each
        elif module.kind == "head":
            rows = Fraction(module.rows, sizes.tp)
            yield module, max(stages), (rows + module.columns) * sizes.each


def sglang_adapters_refused(request: PlanRequest) -> Iterator[str]:
    """Why SGLang would not start with adapters."""
    if not request.enable_lora:
        return
    if not (request.max_lora_rank and request.lora_target_modules):
        yield (
            "--enable-lora needs --max-lora-rank and --lora-target-modules (all, or names) where no"
            " --lora-paths are given"
        )
    if request.enable_dp_attention:
        yield "--enable-lora with data parallel attention is not taken"


def sglang_adapter_options(request: PlanRequest) -> Iterator[str]:
    if not request.enable_lora:
        return
    yield "--enable-lora"
    yield from option("--max-loras-per-batch", request.max_loras)
    yield from option("--max-lora-rank", request.max_lora_rank)
    if request.lora_target_modules:
        yield f"--lora-target-modules {' '.join(request.lora_target_modules)}"
