"""What vLLM refuses to start, by version: devices that it does not run on, formats that a device
has no kernels for, and matrices that do not split.

From docs/getting_started/installation of 0.14 and 0.21, `get_min_capability` of each format in
vllm/model_executor/layers/quantization, vllm/platforms/rocm.py and cuda.py, vllm/config/model.py
and model_loader/bitsandbytes_loader.py of the releases named.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from headcount.arch.config_parts import whole_configs
from headcount.model.dtypes import ALIASES

from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ...stored import as_loaded
from ..refusals.formats import Since, format_of, lacks_kernels, needs
from ..refusals.platforms import Platforms, has_capability
from ..version import Version
from .added.refusals import added_refusals
from .added.spread import vllm_spread
from .blocks import BlockTable
from .cache_kernels import cache_refusals, latent_notes, latent_refusals
from .context_parallel import context_refusals
from .defaults import step_limits
from .launch import made_while_loading
from .model_rules import NOT_IN_FLOAT16, as_served
from .pool import vllm_pool

if TYPE_CHECKING:
    from ..refusals.partition import CutRules

_CDNA, _RDNA = ("gfx90a", "gfx942", "gfx950"), ("gfx1100",)
_LEAST: Mapping[str, Since] = {
    "fp8": (((0, 14), "7.5"), ((0,), "8.0")),
    "fbgemm_fp8": (((0,), "8.0"),),
    "mxfp4": (((0,), "8.0"),),
    "awq": (((0,), "7.5"),),
    "compressed-tensors": (((0,), "7.0"),),
    "bitsandbytes": (((0,), "7.0"),),
    "modelopt, fp8": (((0, 27), "8.0"), ((0,), "8.9")),
    "modelopt, nvfp4": (((0, 14), "7.5"), ((0, 9), "8.0"), ((0,), "10.0")),
    "modelopt, mxfp8": (((0, 20), "8.0"), ((0, 16), "10.0")),
    # What --quantization makes (layers/quantization/mxfp8.py, then online/base.py).
    "mxfp8 made while loading": (((0, 20), "7.5"), ((0, 19), "10.0")),
}
# Since a version: formats that ROCm's list of quantisations has, where that was not always so.
_ON_ROCM_SINCE = {"mxfp4": (0, 10), "bitsandbytes": (0, 12), "modelopt": (0, 21)}
# BlockSize of vllm/config/cache.py (config.py until 0.10), any number since 0.18; and MultipleOf in
# get_supported_kernel_block_sizes of vllm/v1/attention/backends, of which AITER's take 1 as well.
_ANY_SIZE_SINCE, _LARGER_SINCE, _LARGER = (0, 18), (0, 12), 256
_KERNEL_STEP = 16
_FP8_ON_ALL_CDNA = (0, 20)  # on MI200 as well
_SPARSE_ON, _SPARSE_ON_12 = frozenset({"9", "10", "12"}), (0, 24)


def vllm_platforms(version: Version) -> Platforms:
    """TPUs, Gaudi, Neuron and Apple's GPUs have plugins, whose memory is another account."""
    least = "7.5" if version.at_least(0, 21) else "7.0"
    return {"cuda": least, "rocm": (*_CDNA, *_RDNA), "xpu": None}


def vllm_refusals(model: PlannedModel, device: Device | None, work: Workload) -> Iterator[str]:
    """On a device that it runs on: what that has no kernels for, then what does not split."""
    if device is not None:
        yield from _formats(model, device, work)
    yield from context_refusals(model, work)
    yield from _cuts(model, device, work)
    table = vllm_pool(model, work).table
    yield from added_refusals(model, work, len(table.groups))
    yield from _blocks(model, table, device, work)
    yield from latent_refusals(as_served(model).spec)
    yield from cache_refusals(model, table, device, work)
    yield from _sequences(device, work)
    if work.request.tp > 1 and work.request.dtype is None and format_of(model) == "bitsandbytes":
        yield "weights that bitsandbytes has quantised do not split: --pp instead of --tp"


def _blocks(
    model: PlannedModel, table: BlockTable, device: Device | None, work: Workload
) -> Iterator[str]:
    """Sizes that the parser has no choice for, and those that no kernel takes: beside recurrent
    state that is the size which is made of the one asked for."""
    size, version = work.request.block_size, work.version
    if size is None:
        return
    most = _LARGER if version.at_least(*_LARGER_SINCE) else _LARGER // 2
    choices = [1, 8, *(n for n in (16, 32, 64, 128, 256) if n <= most)]
    if size not in choices and not version.at_least(*_ANY_SIZE_SINCE):
        yield f"--block-size is one of {', '.join(map(str, choices))}, not {size}"
        return
    has_state = any(group.cache.kind == "state" for group in table.groups)
    kept = table.block_size if has_state else size
    if not model.spec.is_cached or kept is None or not kept % _KERNEL_STEP:
        return
    if kept == 1 and device is not None and device.platform == "rocm":
        return
    yield f"no kernel of attention takes blocks of {kept} tokens: multiples of {_KERNEL_STEP}"


def _sequences(device: Device | None, work: Workload) -> Iterator[str]:
    """verify_max_model_len of SchedulerConfig (vllm/config/scheduler.py)."""
    tokens, sequences = step_limits(work.version, device, work.request)
    if sequences > tokens:
        yield (
            f"--max-num-seqs {sequences} is more than --max-num-batched-tokens, which is"
            f" {tokens:,}: each sequence takes a token of a step"
        )


def _cuts(model: PlannedModel, device: Device | None, work: Workload) -> Iterator[str]:
    if work.request.ranks == 1:
        return
    from ..refusals.partition import uneven_cuts

    rules = vllm_cuts(model, device, work)
    yield from uneven_cuts(as_loaded(model, work.dtype), work.request.tp, rules)


def vllm_notes(model: PlannedModel, device: Device | None, work: Workload) -> Iterator[str]:
    """What runs 8 bit with scales for each 32 where no device's own kernels do; latents that these
    were not made for; where blocks of experts are cut, and so what would not have started before.
    """
    yield from latent_notes(as_served(model).spec, device)
    if device is not None and "mxfp8" in (_loaded_format(model, work) or ""):
        yield from _of_mxfp8(device)
    if work.request.ranks == 1:
        return
    from ..refusals.partition import refined_experts

    rules = vllm_cuts(model, device, work)
    found = refined_experts(as_loaded(model, work.dtype), work.request.tp, rules)
    if found is not None:
        yield f"{found}, which Triton's kernels alone run; before 0.29 vLLM refuses such a start."


def _of_mxfp8(device: Device) -> Iterator[str]:
    """The kernels that are tried in turn (vllm/model_executor/kernels/linear/mxfp8)."""
    if device.platform != "cuda" or has_capability(device, "10.0"):
        return
    if has_capability(device, "8.0"):
        yield (
            f"mxfp8 on {device.key}: weights lie there in 8 bit and are computed with in 16"
            " (Marlin's kernels); kernels of its own begin with compute capability 10.0."
        )
    else:
        yield f"mxfp8 on {device.key}: each step takes the weights back to 16 bit, which is slow."


def vllm_cuts(model: PlannedModel, device: Device | None, work: Workload) -> "CutRules":
    """Matrices that run as one are cut anywhere (_maybe_allow_fp8_block_shape_mismatch of
    layers/linear.py), then experts (refine_fp8_moe_block_shape of fused_moe/oracle/fp8.py) where
    Triton's kernels have fp8 (supports_fp8 of platforms/cuda.py)."""
    from ..refusals.partition import MERGED, CutRules

    has_fp8 = device is None or device.platform != "cuda" or has_capability(device, "8.9")
    return CutRules(
        amid_blocks=MERGED if work.version.at_least(0, 14) else frozenset(),
        refines_experts=work.version.at_least(0, 29) and has_fp8,
        whole_experts=work.request.enable_expert_parallel,
        expert_ranks=vllm_spread(model, work).experts_tp,
    )


def _formats(model: PlannedModel, device: Device, work: Workload) -> Iterator[str]:
    method = _loaded_format(model, work)
    if device.platform == "cuda":
        yield from _on_cuda(method, model, device, work)
    elif device.platform == "rocm" and method is not None:
        since = _ON_ROCM_SINCE.get(method.partition(",")[0])
        if since is not None and not work.version.at_least(*since):
            yield f"{method} runs with ROCm since {'.'.join(map(str, since))}"
        elif "fp8" in method and device.capability not in _fp8_with_rocm(work.version):
            yield f"{method} has no kernels for {device.capability}"


def _loaded_format(model: PlannedModel, work: Workload) -> str | None:
    made = made_while_loading(model, work)
    if made == "mxfp8":
        return f"{made} made while loading"
    return format_of(as_loaded(model, work.dtype))


def _fp8_with_rocm(version: Version) -> tuple[str, ...]:
    return _CDNA if version.at_least(*_FP8_ON_ALL_CDNA) else ("gfx942", "gfx950")


def _on_cuda(
    method: str | None, model: PlannedModel, device: Device, work: Workload
) -> Iterator[str]:
    if (lack := lacks_kernels(method, device, work.version, _LEAST)) is not None:
        yield lack
    yield from _sparse(model, device, work.version)
    if has_capability(device, "8.0"):
        return
    asked = ALIASES.get(work.request.dtype or "", work.request.dtype)
    if asked == "bfloat16":
        yield needs("bfloat16", "8.0", device)
    elif model.spec.model_type in NOT_IN_FLOAT16 and asked != "float32":
        why = needs("bfloat16", "8.0", device)
        yield f"{model.spec.model_type} is not run in float16, and {why}"


def _sparse(model: PlannedModel, device: Device, version: Version) -> Iterator[str]:
    """Attention over what an indexer chooses (`index_topk`) has kernels for some devices alone
    (supports_compute_capability in vllm/v1/attention/backends/mla and vllm/models/deepseek_v4)."""
    major = (device.capability or "").partition(".")[0]
    known = _SPARSE_ON if version.at_least(*_SPARSE_ON_12) else _SPARSE_ON - {"12"}
    if major not in known and any(
        "index_topk" in holder for holder in whole_configs(model.config, model.spec.model_type)
    ):
        listed = ", ".join(f"{number}.x" for number in sorted(known, key=int))
        yield (
            f"attention by an indexer has kernels for compute capability {listed}, {device.key} has"
            f" {device.capability}"
        )
