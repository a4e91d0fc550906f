"""Which types of cache vLLM's kernels read, by kind of attention and device, and in which layout
they keep latents that an indexer picks.

`supported_kv_cache_dtypes`, `supports_compute_capability` and `supports_combination` of the classes
in vllm/v1/attention/backends, in the order of `_get_backend_priorities` of vllm/platforms/cuda.py
and rocm.py, as they stand in 0.16, 0.20, 0.24, 0.28 and 0.32; DeepSeek-V4's from
`_resolve_dsv4_kv_cache_dtype` of vllm/models/deepseek_v4/attention.py.
"""

from collections.abc import Collection, Iterator

from headcount.model.mixers import LatentAttention
from headcount.model.spec import ModelSpec

from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ..cache_names import AUTO
from ..layers import compresses, picks_latents
from ..version import Version
from .blocks import BlockTable
from .cache_types import CACHES
from .model_rules import takes_bfloat16_as_auto

_LISTED_SINCE = (0, 16)  # of the releases read, the first whose classes list what they read
_LATENTS_IN_FP8_SINCE, _FP4_SINCE = (0, 20), (0, 32)  # Triton's MLA; FlashAttention-2 of FlashInfer
_PICKED_SINCE = (0, 20)
# kv_lora_rank + qk_rope_head_dim, as 0.32 has them; earlier releases had 576 alone, then 320 too.
LATENT_SIZES = (576, 512, 320)
_MADE = (512, 64)
DS_MLA = "fp8_ds_mla"
_WIDE, _FP8 = (AUTO, "float16", "bfloat16"), ("fp8", "fp8_e4m3")
_OF_LATENTS = (DS_MLA, "nvfp4_ds_mla")
# Of latents that an indexer picks, by the first number of the compute capability. 12.x keeps the
# layout of its own for `auto` as well.
_PICKED = {
    "9": (*_WIDE, "fp8", DS_MLA),
    "10": (*_WIDE, *_FP8, *_OF_LATENTS),
    "12": (AUTO, *_FP8, DS_MLA),
}
_E4M3_ON_9_SINCE = (0, 32)
_AUTO_IS_FP8_SINCE = (0, 32)  # not in 0.28; of the releases between, none was read


def layout_of_picked(
    name: str, spec: ModelSpec, device: Device | None, version: Version
) -> tuple[str, bool]:
    """The name that vLLM gives the cache `name` of what an indexer picks, and whether its latents
    lie there plain. FlashMLA's kernels keep 8 bit in DeepSeek's layout, FlashInfer's of 10.x and
    those of ROCm do not (_canonicalize_sparse_mla_kv_cache_dtype of
    vllm/model_executor/layers/attention/mla_attention.py)."""
    if compresses(spec):
        return (DS_MLA if name == AUTO or name.startswith("fp8") else name), False
    if not picks_latents(spec):
        return name, False
    generation, is_fp8 = _generation(device), name in _FP8
    if generation == "12" and (is_fp8 or name == AUTO):
        return DS_MLA, False
    if not is_fp8:
        return name, False
    plain = version.at_least(*_PICKED_SINCE) and (
        generation in ("10", "rocm") or (generation == "9" and name == "fp8_e4m3")
    )
    return (name, True) if plain else (DS_MLA, False)


def must_be_named(spec: ModelSpec, version: Version) -> bool:
    """Whether a start without --kv-cache-dtype fails: until `auto` was what these layers keep."""
    return compresses(spec) and not version.at_least(*_AUTO_IS_FP8_SINCE)


def _latents(spec: ModelSpec) -> set[tuple[int, int]]:
    """Ranks of the layers whose latents are read whole, and what rotates beside each."""
    if compresses(spec) or picks_latents(spec):
        return set()
    mixers = {mixer for layer in spec.layers for mixer in layer.mixers}
    return {(m.kv_lora_rank, m.qk_rope_head_dim) for m in mixers if type(m) is LatentAttention}


def latent_refusals(spec: ModelSpec) -> Iterator[str]:
    """Where a token's latent and the key that rotates are together of a size that no layer runs:
    get_supported_head_sizes of MLACommonBackend in vllm/model_executor/layers/attention/
    mla_attention.py, which the first request is held against (ValueError: Head dimension … is not
    supported by MLA). Layers that an indexer picks tokens for have other kernels."""
    for rank, rotated in sorted(_latents(spec)):
        if rank + rotated not in LATENT_SIZES:
            most, *others = map(str, LATENT_SIZES)
            yield (
                f"its latent attention runs {', '.join(reversed(others))} or {most} elements of a"
                f" token (kv_lora_rank + qk_rope_head_dim), not {rank} + {rotated}"
            )


def latent_notes(spec: ModelSpec, device: Device | None) -> Iterator[str]:
    """FlashMLA, FlashAttention's MLA and CUTLASS's are made for 512 + 64, though the last two are
    asked for their sum alone, and the first for nothing."""
    rest = sorted(size for size in _latents(spec) if sum(size) in LATENT_SIZES and size != _MADE)
    if rest and (device is None or device.platform == "cuda"):
        rank, rotated = rest[0]
        yield (
            "the kernels for latents on Hopper and data centres' Blackwell are made for"
            f" {_MADE[0]} + {_MADE[1]}; Triton's, which run {rank} + {rotated}, are asked for by"
            " --attention-backend TRITON_MLA (by vLLM's code: it was not run on a GPU)."
        )


def cache_refusals(
    model: PlannedModel, table: BlockTable, device: Device | None, work: Workload
) -> Iterator[str]:
    """Where no kernel reads the type of cache that is asked for, with those that one does."""
    name = CACHES.own(work.request.kv_dtype, work.version, work.compute_dtype)
    if name == AUTO or not work.version.at_least(*_LISTED_SINCE):
        return
    if compresses(model.spec):
        if not name.startswith("fp8"):
            yield (
                f"the layout that layers with compressed tokens have is 8 bit, not {name}:"
                " --kv-dtype fp8, or none"
            )
        return
    kinds = {group.cache.kind for group in table.groups}
    found = _of_latents(model.spec, device, work.version) if "latent" in kinds else None
    if found is not None and name not in found:
        yield _lacks("latents", name, found, device)
    if kinds & {"full", "sliding", "chunked"} and "latent" not in kinds:
        yield from _of_heads(name, device, work.version)


def _of_latents(spec: ModelSpec, device: Device | None, version: Version) -> Collection[str] | None:
    """None: not known."""
    generation = _generation(device)
    if picks_latents(spec):
        if not version.at_least(*_PICKED_SINCE):
            return None
        if generation == "rocm":
            return (*_WIDE, *_FP8)
        found = _PICKED.get(generation, (*_WIDE, *_FP8, *_OF_LATENTS))
        if generation == "9" and version.at_least(*_E4M3_ON_9_SINCE):
            found = (*found, "fp8_e4m3")
        if generation == "12" and takes_bfloat16_as_auto(spec.model_type):
            found = (*found, "bfloat16")
        return found
    has_fp8 = version.at_least(*_LATENTS_IN_FP8_SINCE) or generation in ("", "9", "10", "rocm")
    return (*_WIDE, *_FP8) if has_fp8 else _WIDE


def _of_heads(name: str, device: Device | None, version: Version) -> Iterator[str]:
    """Of keys and values by head: layouts of latents are none of theirs, 4 bit of one kind are
    FlashInfer's, and those of another ROCm's."""
    generation = _generation(device)
    if name in _OF_LATENTS:
        yield _lacks("keys and values of heads", name, (*_WIDE, *_FP8, "fp8_e5m2"), device)
    elif name.startswith("nvfp4") and generation:
        everywhere = ("8", "9", "10", "12") if name == "nvfp4" else ("10",)
        known = everywhere if version.at_least(*_FP4_SINCE) else ("10",)
        if generation not in known:
            listed = ", ".join(f"{n}.x" for n in known)
            yield f"a cache of {name} has kernels for compute capability {listed} alone"
    elif name == "ultraquant_4bit" and generation not in ("", "rocm"):
        yield f"a cache of {name} has kernels for ROCm alone"


def _lacks(kept: str, name: str, known: Collection[str], device: Device | None) -> str:
    where = f" on {device.key}" if device is not None and device.platform else ""
    *most, last = dict.fromkeys(known)
    return f"no kernel reads {kept} in {name}{where}: --kv-dtype {', '.join(most)} or {last}"


def _generation(device: Device | None) -> str:
    """The first number of CUDA's compute capability, or the platform; nothing where neither is
    known."""
    if device is None or not device.platform:
        return ""
    if device.platform != "cuda":
        return device.platform
    return (device.capability or "").partition(".")[0]
