"""What vLLM has left for K/V memory, from first principles: no figure of a log but constants.

requested = device's total x utilisation; available = requested - weights - the peak of a profiled
step - memory outside torch - since 0.20 CUDA graphs (vllm/v1/worker/gpu_worker.py). The constants
and their errors were fitted to public start-up logs; docs/engines.md holds them against all of
them.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Any

from headcount.arch.config_parts import has_tower

from ...budget import Budget, Term
from ...devices import Device
from ...overhead import plan_overhead
from ...planned_model import PlannedModel
from ...request import PlanRequest, Workload
from ..budget_terms import share_of
from ..loaded_weights import stage_weights
from ..version import Version
from .defaults import counts_graphs, default_utilisation, is_hopper_or_newer, step_limits

_GIB = 2**30
# Bytes per logit of the profiled sampler: float32 logits, sorted values, int64 indices, softmax and
# cumulative sums. 38.4 to 39.6 in six logs of 0.9 to 0.13, and about 32 in one of 0.19.
_PYTORCH, _PYTORCH_SINCE_019, _FLASHINFER = 38.9, 32.0, 17.5
_NON_TORCH, _NON_TORCH_PARALLEL = 0.10, 0.55
_TOWER, _GRAPHS, _UNIFIED = 0.5, 0.8, 1.5


def vllm_budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """The budget of one rank of each stage, term by term; `device` must be known."""
    assert device is not None
    allowed = share_of(device, work.request.utilisation or default_utilisation(work.version))
    others = tuple(_others(model, device, work))
    marlin = _runs_on_marlin(work.version, device)
    return tuple(
        Budget(allowed=allowed, fixed=(weights, *others))
        for weights in stage_weights(model, work, with_marlin=marlin)
    )


def _others(model: PlannedModel, device: Device, work: Workload) -> Iterator[Term]:
    yield _activations(model, device, work)
    yield _outside(work.request.ranks)
    yield from _tower(model.config)
    yield from _unified(device)
    yield from _graphs(work.version, work.request)


def _runs_on_marlin(version: Version, device: Device) -> bool:
    """Whether MXFP4 experts do, as on every device until Triton's kernels in 0.11, which need
    Hopper (get_mxfp4_backend of vllm/model_executor/layers/quantization/mxfp4.py)."""
    return not is_hopper_or_newer(device) or not version.at_least(0, 11)


def sampler_bytes_per_logit(version: Version, sampler: str) -> float:
    """Bytes of the sampler's peak per sequence and entry of the vocabulary."""
    if sampler == "flashinfer":
        return _FLASHINFER
    return _PYTORCH_SINCE_019 if version.at_least(0, 19) else _PYTORCH


def _activations(model: PlannedModel, device: Device, work: Workload) -> Term:
    """The larger of a forward pass over a step's tokens and of sampling for its sequences."""
    step = step_limits(work.version, device, work.request)
    overhead = plan_overhead(model.spec, work, step_limit=None)
    rows = min(step.max_num_seqs, step.max_num_batched_tokens)
    each = sampler_bytes_per_logit(work.version, work.request.sampler)
    vocabulary = overhead.vocab_size or 0
    sampler = ceil(each * rows * vocabulary)
    forward = overhead.forward_bytes(step.max_num_batched_tokens, 1)
    if sampler > forward:
        return Term(
            key="activations",
            title="Activations",
            bytes=sampler,
            formula=f"sampler: {each:g} B x {rows:,} sequences x vocabulary {vocabulary:,}",
            source="start-up logs of 0.9 to 0.19: 38.4 to 39.6 B (PyTorch), 32 (0.19), 17.5"
            " (FlashInfer)",
            error_bytes=ceil(0.05 * sampler),
        )
    return Term(
        key="activations",
        title="Activations",
        bytes=forward,
        formula=f"forward: {step.max_num_batched_tokens:,} tokens x hidden"
        f" {overhead.hidden_size:,} x (4 + 12 / {overhead.tp}) x {overhead.element_bytes} B",
        source="residual, normed input, attention output and an MLP of 4 x hidden_size",
        error_bytes=forward // 2,
    )


def _outside(ranks: int) -> Term:
    alone = ranks == 1
    size = _NON_TORCH if alone else _NON_TORCH_PARALLEL
    return Term(
        key="non_torch",
        title="Outside torch",
        bytes=ceil(size * _GIB),
        formula=f"{size:g} GiB of libraries{'' if alone else ' and communication'}",
        source="start-up logs: 0.02 to 0.13 GiB on one device, 0.54 and 0.55 on two",
        error_bytes=ceil((0.1 if alone else 0.6) * _GIB),
    )


def _tower(config: Mapping[str, Any]) -> Iterator[Term]:
    if has_tower(config):
        yield Term(
            key="tower",
            title="Encoder of images or sound",
            bytes=ceil(_TOWER * _GIB),
            formula=f"{_TOWER:g} GiB: profiled with the largest input",
            source="start-up logs of five multimodal models: 0 to 1.1 GiB",
            error_bytes=ceil(_TOWER * _GIB),
        )


def _unified(device: Device) -> Iterator[Term]:
    """Where device and host share memory, what the host takes meanwhile counts as the engine's."""
    if "shared with the CPU" in device.name:
        yield Term(
            key="unified",
            title="Shared memory",
            bytes=ceil(_UNIFIED * _GIB),
            formula=f"{_UNIFIED:g} GiB of file cache and processes of the host",
            source="three start-up logs on GB10: 0.6, 1.3 and 3.3 GiB",
            error_bytes=ceil(_UNIFIED * _GIB),
        )


def _graphs(version: Version, request: PlanRequest) -> Iterator[Term]:
    if request.enforce_eager or not counts_graphs(version):
        return
    yield Term(
        key="cuda_graphs",
        title="CUDA graphs",
        bytes=ceil(_GRAPHS * _GIB),
        formula=f"{_GRAPHS:g} GiB, estimated by the engine before capture",
        source="start-up logs: 0.1 to 2.4 GiB; before 0.20 outside the budget",
        error_bytes=ceil(_GRAPHS * _GIB),
    )
