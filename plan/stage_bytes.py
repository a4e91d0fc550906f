"""What the matrices of each kind weigh on each pipeline stage, all ranks of the stage together."""

from collections.abc import Iterator, Mapping
from functools import lru_cache

from headcount.arch.modules.module import Kind, Module
from headcount.model.errors import UnsupportedModelError
from headcount.model.spec import ModelSpec

from .planned_model import PlannedModel
from .request import Workload
from .stored import Weighed, weighed
from .weights import wide_bits

StageBytes = Mapping[Kind, float]  # norms and the like count as `other`


def stage_bytes(
    model: PlannedModel, work: Workload, stages: tuple[int, ...]
) -> tuple[StageBytes, ...] | None:
    """Bytes of each kind on each stage, of which `stages` has one a layer; together they are those
    of the weights as planned. None where these, or what the config makes of each matrix, are not
    known.

    The input embedding and towers are on the first stage, the output head and what stands outside
    of the layers on the last.
    """
    if work.weights is None:
        return None
    bits = wide_bits(model.spec, work.compute_dtype)
    return _by_stage(model, work.dtype, bits, work.weights.total_bytes, stages)


def weighed_as_planned(model: PlannedModel, work: Workload) -> Weighed | None:
    """The matrices of `model` as the plan loads them; None where the config does not tell."""
    try:
        return weighed(model, work.dtype, wide_bits(model.spec, work.compute_dtype))
    except UnsupportedModelError:
        return None


@lru_cache(maxsize=64)
def _by_stage(
    model: PlannedModel, dtype: str | None, bits: int, total: int, stages: tuple[int, ...]
) -> tuple[StageBytes, ...] | None:
    try:
        found = weighed(model, dtype, bits)
    except UnsupportedModelError:  # of files whose format the config does not tell
        return None
    if found is None:
        return None
    scale = total / max(1, found.nbytes)
    kinds: tuple[dict[Kind, float], ...] = tuple({} for _ in range(max(stages) + 1))
    for stage, kind, size in _placed(found, model.spec, stages):
        kinds[stage][kind] = kinds[stage].get(kind, 0.0) + size * scale
    return kinds


def _placed(
    found: Weighed, spec: ModelSpec, stages: tuple[int, ...]
) -> Iterator[tuple[int, Kind, float]]:
    at = {layer.stored_as: stage for layer, stage in zip(spec.layers, stages, strict=True)}
    last = max(stages)
    for module, size in found.modules:
        yield _stage(module, at, last), module.kind, size
    for stage in stages:  # evenly over the layers
        yield stage, "other", found.others / len(stages)


def _stage(module: Module, at: Mapping[int, int], last: int) -> int:
    if module.kind in ("embedding", "tower"):
        return 0
    return last if module.layer is None else at.get(module.layer, last)
