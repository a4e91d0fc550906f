"""What torch's allocator adds to large weights: a piece is a multiple of 2 MiB, and what is left of
it counts as the tensor's unless it is more than 1 MiB (CUDACachingAllocator of PyTorch, whose
`max_memory_allocated` vLLM logs as the weights')."""

from collections.abc import Iterator
from functools import lru_cache

from headcount.arch.modules.module import Module

from ...planned_model import PlannedModel, matrices_of
from ...request import Workload
from ..loaded_table import LoadedTable

_MIB = 2**20
_LARGE, _PIECE, _SPLIT = 10 * _MIB, 2 * _MIB, 1 * _MIB
# What is loaded as one matrix (QKVParallelLinear, MergedColumnParallelLinear, FusedMoE).
_FUSED = {"q": "qkv", "k": "qkv", "v": "qkv", "gate": "gate_up", "up": "gate_up"}


def unsplit(model: PlannedModel, work: Workload) -> LoadedTable | None:
    """On a rank of one stage of all; None where weights are quantised, or not known one by one."""
    weights, request = work.weights, work.request
    if weights is None or weights.source == "quantised" or model.spec.parameters is None:
        return None
    each = weights.per_attention_parameter
    if each.denominator != 1 or each < 2:
        return None
    size = _left_over(model, request.tp, int(each)) // request.pp
    if not size:
        return None
    return LoadedTable(bytes=size, formula="what is left of pieces of 2 MiB")


@lru_cache(maxsize=64)
def _left_over(model: PlannedModel, tp: int, element_bytes: int) -> int:
    inventory = matrices_of(model)
    if inventory is None:
        return 0
    sizes = (parameters // tp * element_bytes for parameters in _fused(inventory.modules))
    left = (-size % _PIECE for size in sizes if size >= _LARGE)
    return sum(size for size in left if size <= _SPLIT)


def _fused(modules: tuple[Module, ...]) -> Iterator[int]:
    """Parameters of each matrix as it is loaded."""
    found: dict[tuple[int | None, str, str], int] = {}
    for module in modules:
        if module.kind == "tower":
            continue
        part = _FUSED.get(module.part, module.name)
        key = (module.layer, module.kind, part)
        found[key] = found.get(key, 0) + module.parameters
    yield from found.values()
