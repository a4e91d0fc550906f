"""The types of SGLang's cache: their names, what is taken for none, and what does not start.

From sglang/srt/server_args.py (0.5 to 0.5.9), arg_groups/overrides.py and kv_cache_hook.py, and
calculate_mla_kv_cache_dim of mem_cache/kv_cache_configurator.py (0.5.16 to 0.5.23).
"""

from collections.abc import Iterator

from ..devices import Device
from ..planned_model import PlannedModel
from ..request import CacheType, PlanRequest, Workload
from .cache_names import AUTO, CacheNames
from .layers import compresses, picks_latents
from .paged import named_cache_type
from .refusals.platforms import has_capability
from .version import Version

# Choices of --kv-cache-dtype in sglang/srt/server_args.py (arg_groups/fields/model.py from 0.5.21).
CACHES = CacheNames(
    engine="SGLang",
    option="--kv-cache-dtype",
    since={
        **dict.fromkeys(("fp8_e4m3", "fp8_e5m2"), ()),
        **dict.fromkeys(("bfloat16", "bf16"), (0, 5, 4)),
        "fp4_e2m1": (0, 5, 5),
        **dict.fromkeys(("mxfp8", "nvfp4", "fp4_mx_block16"), (0, 5, 16)),
    },
    until={"fp4_e2m1": (0, 5, 21)},
)
_PICKED_SINCE = (0, 5, 5)  # of the releases read, the first that says what indexers' latents take
_PLAIN_SINCE = (0, 5, 16)  # TensorRT-LLM's kernels of 10.x for 8 bit, without scales
_BLACKWELL = "10.0"


def sglang_cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    """Latents that an indexer picks, and compressed tokens, have types of their own where none is
    asked for."""
    spec, device = model.spec, request.device
    name = CACHES.own(request.kv_dtype, version, compute_dtype)
    if name == AUTO and (compresses(spec) or _is_in_fp8(model, device, version)):
        name = "fp8_e4m3"
    found = named_cache_type(name, compute_dtype)
    is_plain = name == "fp8_e4m3" and _lies_plain(model, device, version)
    return found._replace(plain_latents=is_plain)


def _is_in_fp8(model: PlannedModel, device: Device | None, version: Version) -> bool:
    return (
        picks_latents(model.spec)
        and device is not None
        and has_capability(device, _BLACKWELL)
        and version.at_least(*_PICKED_SINCE)
    )


def _lies_plain(model: PlannedModel, device: Device | None, version: Version) -> bool:
    """GLM's on 12.x keep DeepSeek's layout with scales (FlashInfer's kernels), as Hopper's do."""
    if device is None or not version.at_least(*_PLAIN_SINCE):
        return False
    if device.platform == "rocm":
        return True
    is_glm_on_12 = model.spec.model_type == "glm_moe_dsa" and has_capability(device, "12.0")
    return has_capability(device, _BLACKWELL) and not is_glm_on_12


def cache_notes(model: PlannedModel) -> Iterator[str]:
    """What the figures leave out."""
    if compresses(model.spec):
        yield (
            "Compressed tokens are counted without SGLang's pools of them (a window's share, rings"
            " of what waits): it logs other tokens."
        )


def sglang_cache_refusals(
    model: PlannedModel, device: Device | None, work: Workload
) -> Iterator[str]:
    """Of types that no kernel reads, with those that one does."""
    name = CACHES.own(work.request.kv_dtype, work.version, work.compute_dtype)
    name = "bfloat16" if name == "bf16" else name
    if name == AUTO:
        return
    if compresses(model.spec) or picks_latents(model.spec):
        kept = "compressed tokens" if compresses(model.spec) else "latents that an indexer picks"
        if name not in ("bfloat16", "fp8_e4m3") and work.version.at_least(*_PICKED_SINCE):
            yield f"{kept} are kept in bfloat16 or fp8_e4m3 alone, not in {name}"
        return
    is_cuda = device is not None and device.platform == "cuda"
    if (
        name in ("mxfp8", "nvfp4")
        and device is not None
        and is_cuda
        and not has_capability(device, _BLACKWELL)
    ):
        yield f"a cache of {name} has kernels for compute capability 10.0 and newer alone"
