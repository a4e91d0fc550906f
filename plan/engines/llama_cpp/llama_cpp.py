"""llama.cpp as an engine: its rules, and the options that it has."""

from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ...served import as_served
from ..engine import Engine
from ..loaded_weights import loaded_weights
from ..version import Releases
from .buffers import budgets, host_terms
from .command import launch
from .placed_pool import device_pool
from .settings import checked_cache_type


def _most_at_once(model: PlannedModel, device: Device | None, work: Workload) -> int | None:
    """A request more waits for a slot; without --parallel there are as many as are asked for."""
    return work.request.parallel


ENGINE = Engine(
    name="llama.cpp",
    as_run=as_served,
    budget=budgets,
    pool=device_pool,
    launch=launch,
    cache_type=checked_cache_type,
    listed_as="llama.cpp",
    weights=loaded_weights,
    host=host_terms,
    options=frozenset(
        {
            *("version", "pp", "parallel", "kv_unified", "ubatch_size", "cache_type_k"),
            *("cache_type_v", "flash_attn", "swa_full", "gpu_layers", "n_cpu_moe", "cpu_moe"),
            "no_kv_offload",
        }
    ),
    releases=Releases(oldest=(9093,), newest=(11434,)),
    narrower_caches=("q8_0", "q4_0"),
    most_at_once=_most_at_once,
    platforms=lambda version: dict.fromkeys(("cuda", "rocm", "xpu", "metal")),  # docs/build.md
    narrower_weights=("Q8_0", "Q4_K_M"),
)
