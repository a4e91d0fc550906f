"""What vLLM has left for K/V memory, from first principles: no figure of a log but constants.

requested = device's total x utilisation; available = requested - weights - the peak of a profiled
step - memory outside torch - since 0.20 CUDA graphs (vllm/v1/worker/gpu_worker.py). What could not
be read in the source was measured (measured.py); docs/engines.md holds plans against all starts.
"""

from collections.abc import Iterable, Iterator
from math import ceil

from headcount.arch.config_parts import has_experts

from ...budget import Budget, Loading, Term
from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ..added.spread import Spread
from ..budget_terms import share_of
from ..layers import stages_of
from ..loaded_weights import Mxfp4Kernel, loaded_wide, padded_experts, stage_weights
from ..rope_tables import rope_table
from ..version import Version
from .added.drafting import draft_terms
from .added.spread import vllm_spread
from .allocator import unsplit
from .defaults import counts_graphs, default_utilisation, is_hopper_or_newer, step_limits
from .launch import loads_whole
from .measured import (
    GIB,
    GRAPHS_ERROR,
    GRAPHS_EXPERTS,
    GRAPHS_EXPERTS_ERROR,
    GRAPHS_FIRST,
    GRAPHS_LAYER,
    GRAPHS_ROCM,
    GRAPHS_SIZES,
    GRAPHS_SOURCE,
    SHARED,
    Measured,
    outside_torch,
)
from .profiled_step import profiled_step
from .runner import uses_v2

_V2_GRAPHS_SINCE = (0, 29)  # before, the V2 runner estimated 0 (vllm-project/vllm#49224)
_COUNTS_ALL_SINCE = (0, 27)  # total_consumed of vllm/utils/mem_utils.py


def vllm_budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """The budget of one rank of each stage, term by term; `device` must be known."""
    assert device is not None
    allowed = share_of(device, work.request.utilisation or default_utilisation(work.version))
    spread = vllm_spread(model, work)
    experts = padded_experts(model, work, spread, _mxfp4_kernel(work.version, device))
    rope = rope_table(model.spec, model.config)
    stages = stages_of(work.request, len(model.spec.layers))
    tables = (rope, experts, unsplit(model, work))
    whole = tuple(stage_weights(model, work, *tables, stages=stages, spread=spread))
    weights = _left(model, work, whole, stages, spread)
    adapters = _adapters(model, work, stages)
    loading = list(_loading(model, device, work, stages, spread))
    return tuple(
        Budget(
            allowed=allowed,
            fixed=(own, *adapters[stage : stage + 1], *_others(model, device, work, stage)),
            loading=loading[stage],
        )
        for stage, own in enumerate(weights)
    )


def _left(
    model: PlannedModel,
    work: Workload,
    weights: tuple[Term, ...],
    stages: tuple[int, ...],
    spread: Spread,
) -> Iterable[Term]:
    """Of the weights, what --cpu-offload-gb does not move."""
    if not work.request.cpu_offload_gb:
        return weights
    from ..added.offload import offloaded

    return offloaded(model, work, weights, stages, spread)


def _adapters(model: PlannedModel, work: Workload, stages: tuple[int, ...]) -> tuple[Term, ...]:
    if not work.request.enable_lora:
        return ()
    from .added.adapters import vllm_adapters

    return tuple(vllm_adapters(model, work, stages))


def vllm_host(model: PlannedModel, work: Workload) -> tuple[Term, ...]:
    """Of --cpu-offload-gb."""
    if not work.request.cpu_offload_gb:
        return ()
    from ..added.offload import moved_to_host

    stages = stages_of(work.request, len(model.spec.layers))
    return moved_to_host(model, work, stages, vllm_spread(model, work))


def _loading(
    model: PlannedModel,
    device: Device,
    work: Workload,
    stages: tuple[int, ...],
    spread: Spread,
) -> Iterator[Loading | None]:
    if not loads_whole(model, work):
        return (None for _ in range(work.request.pp))
    beside = _outside(work, device)
    return loaded_wide(model, device, work, beside, stages=stages, spread=spread)


def _others(model: PlannedModel, device: Device, work: Workload, stage: int) -> Iterator[Term]:
    is_last = stage == work.request.pp - 1
    yield profiled_step(model, device, work, is_first=stage == 0, is_last=is_last)
    yield _outside(work, device)
    if is_last:
        yield from _counts_of_tokens(model, device, work)
        yield from draft_terms(model, work, step_limits(work.version, device, work.request))
    yield from _shared(device)
    yield from _graphs(model, device, work)


def _mxfp4_kernel(version: Version, device: Device) -> Mxfp4Kernel:
    """What MXFP4 experts run on: Marlin on every device until Triton's kernels in 0.11, which need
    Hopper (get_mxfp4_backend of vllm/model_executor/layers/quantization/mxfp4.py)."""
    if not is_hopper_or_newer(device) or not version.at_least(0, 11):
        return "marlin"
    return "triton rows" if version.at_least(0, 18) else "triton"


def _outside(work: Workload, device: Device) -> Term:
    request = work.request
    found = outside_torch(work.version, request.tp, request.pp, device, request.dp)
    talks = " and communication" if request.ranks > 1 else ""
    return Term(
        key="non_torch",
        title="Outside torch",
        bytes=ceil(found.gib * GIB),
        formula=f"{found.gib:g} GiB of libraries{talks}",
        source=found.source,
        error_bytes=ceil(found.error_gib * GIB),
    )


def _counts_of_tokens(model: PlannedModel, device: Device, work: Workload) -> Iterator[Term]:
    """The V2 runner counts each sequence's tokens, and marks its prompt's, for penalties. What is
    kept from before the profile counts since 0.27 (vllm/v1/worker/gpu/sample/penalties.py)."""
    if not (work.version.at_least(*_COUNTS_ALL_SINCE) and uses_v2(model, work)):
        return
    rows = step_limits(work.version, device, work.request).max_num_seqs
    vocabulary = model.spec.vocab_size or 0
    yield Term(
        key="token_counts",
        title="Counts of tokens",
        bytes=rows * (4 * vocabulary + 4 * ceil(vocabulary / 32)),
        formula=f"{rows:,} sequences x vocabulary {vocabulary:,} x (4 B + 1 bit)",
    )


def _shared(device: Device) -> Iterator[Term]:
    """Where device and host share memory, what the host takes meanwhile counts as the engine's."""
    if "shared with the CPU" in device.name:
        yield Term(
            key="unified",
            title="Shared memory",
            bytes=ceil(SHARED.gib * GIB),
            formula=f"{SHARED.gib:g} GiB of file cache and processes of the host",
            source=SHARED.source,
            error_bytes=ceil(SHARED.error_gib * GIB),
        )


def _graphs(model: PlannedModel, device: Device, work: Workload) -> Iterator[Term]:
    """With adapters each graph is captured with and without them (get_lora_capture_cases of
    vllm/v1/worker/gpu/lora_utils.py); what the second takes was not measured."""
    request, spec = work.request, model.spec
    is_skipped = uses_v2(model, work) and not work.version.at_least(*_V2_GRAPHS_SINCE)
    if request.enforce_eager or is_skipped or not counts_graphs(work.version, device):
        return
    layers = ceil(len(spec.layers) / request.pp)
    limits = step_limits(work.version, device, request)
    share = captured_sizes(limits.max_num_seqs) / GRAPHS_SIZES
    of_layers = GRAPHS_LAYER * layers * share
    again = of_layers if request.enable_lora else 0.0
    is_moe = has_experts(model.config, spec.model_type)
    size = GRAPHS_FIRST + GRAPHS_EXPERTS * is_moe + of_layers + again
    error = (GRAPHS_EXPERTS_ERROR if is_moe else GRAPHS_ERROR) + again
    found = Measured(size, error, GRAPHS_SOURCE)
    if device.vendor == "AMD":
        found = GRAPHS_ROCM
    yield Term(
        key="cuda_graphs",
        title="CUDA graphs",
        bytes=ceil(found.gib * GIB),
        formula=f"{found.gib:.2f} GiB, estimated by the engine before capture, of {layers} layers",
        source=found.source,
        error_bytes=ceil(found.error_gib * GIB),
    )


def captured_sizes(max_num_seqs: int) -> int:
    """Batch sizes of which graphs are captured: 1, 2, 4, then each eighth up to 256 and each
    sixteenth up to twice the sequences or 512 (VllmConfig._set_cudagraph_sizes)."""
    most = min(2 * max_num_seqs, 512)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, most + 1, 16)]
    return sum(size <= most for size in sizes)
