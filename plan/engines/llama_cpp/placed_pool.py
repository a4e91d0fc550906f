"""The caches of the device, or those that stay in the host's memory."""

from headcount.model.spec import ModelSpec

from ...planned_model import PlannedModel
from ...request import Workload
from ..pool import CachePool
from ..staged_pool import pool_of_stages
from .layer_cells import layer_cells
from .placement import Placement, layers_of, placement
from .pool import LlamaCppPool
from .settings import cache_types, slots_of, uses_flash_attention


def device_pool(model: PlannedModel, work: Workload) -> CachePool:
    """What lies on the device."""
    where = placement(work.request, layers_of(model.spec))
    return pool_of_stages(
        model.spec, work.request.pp, lambda spec: pool_of(spec, work, where, on_device=True)
    )


def pool_of(spec: ModelSpec, work: Workload, where: Placement, *, on_device: bool) -> LlamaCppPool:
    request = work.request
    cells = layer_cells(spec, tp=request.tp, padded_values=not uses_flash_attention(request))
    return LlamaCppPool(
        layers=tuple(c for c in cells if where.holds_cache(c.layer) == on_device),
        types=cache_types(request),
        slots=slots_of(request),
    )
