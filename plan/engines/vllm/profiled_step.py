"""The peak of the step that vLLM profiles before it gives the rest to its cache.

A forward pass of `max_num_batched_tokens` tokens, then sampling for `max_num_seqs` sequences; the
hidden states of the pass are kept meanwhile (profile_run and _dummy_sampler_run of
vllm/v1/worker/gpu_model_runner.py and vllm/v1/worker/gpu/model_runner.py). What is alive when a
sampler is at its peak can be read in its source; of the sort alone it was measured.
"""

from math import ceil
from typing import NamedTuple

from ...budget import Term
from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from .defaults import StepLimits, is_hopper_or_newer, step_limits
from .encoder import EncoderShare, encoder_share
from .forward import forward_elements
from .measured import (
    FORWARD_ERROR,
    GIB,
    SAMPLER_ERROR,
    SORTED_BYTES,
    SORTED_SOURCE,
    STEP_ERROR,
)
from .runner import Sampler, uses_v2, v1_sampler, v2_copies_logits

# The kernel for top-k and top-p has a row of logits in float32 for each multiprocessor: 132 on
# H100, 108 on A100, 142 on L40S, 148 on B200.
_MULTIPROCESSORS = 132
# cuBLAS's workspace, from torch's allocator (CUDABlas.cpp of PyTorch).
_CUBLAS, _CUBLAS_HOPPER = 8320 * 2**10, 32 * 2**20
_MIB = 2**20


class Peak(NamedTuple):
    """Bytes of torch's allocator beyond the weights, and why."""

    bytes: int
    formula: str
    source: str
    error_bytes: int


def profiled_step(
    model: PlannedModel, device: Device, work: Workload, *, is_first: bool, is_last: bool
) -> Term:
    """The larger of the forward pass and of sampling, which is the last stage's alone."""
    step = step_limits(work.version, device, work.request)
    share = encoder_share(model, work, step) if is_first else EncoderShare()
    peaks = [_forward(model, work, step, is_last=is_last)]
    if is_last and model.spec.vocab_size and model.spec.is_cached:
        peaks.append(_sampling(model, device, work, step))
    peak = max(peaks, key=lambda found: found.bytes)
    workspace = _CUBLAS_HOPPER if is_hopper_or_newer(device) else _CUBLAS
    size = max(peak.bytes + share.kept, share.peak) + workspace
    return Term(
        key="activations",
        title="Activations",
        bytes=size,
        formula=f"{peak.formula}{share.formula} + {workspace / _MIB:.3g} MiB of cuBLAS",
        source=peak.source,
        error_bytes=peak.error_bytes + share.error_bytes + ceil(STEP_ERROR * GIB),
    )


def _forward(model: PlannedModel, work: Workload, step: StepLimits, *, is_last: bool) -> Peak:
    tokens, width = step.max_num_batched_tokens, ceil(work.compute_bits / 8)
    found = forward_elements(model, work.request.tp)
    handed = 0 if is_last else 2 * model.spec.hidden_size  # to the next stage
    size = tokens * (found.elements + handed) * width
    return Peak(
        bytes=size,
        formula=f"forward: {tokens:,} tokens x ({found.formula}"
        f"{f' + {handed:,} to the next stage' if handed else ''}) x {width} B",
        source="widths of the layers; measured within a fifth in starts of 0.19",
        error_bytes=ceil(FORWARD_ERROR * size),
    )


def _sampling(model: PlannedModel, device: Device, work: Workload, step: StepLimits) -> Peak:
    """Of logits, and of the hidden states that are alive with them: those of the step, and those
    of the sequences' last tokens, twice in the V1 runner."""
    rows = min(step.max_num_seqs, step.max_num_batched_tokens)
    width, vocabulary = ceil(work.compute_bits / 8), model.spec.vocab_size or 0
    is_v2, hidden = uses_v2(model, work), model.spec.hidden_size
    kind: Sampler = "none"
    if not is_v2:
        kind = v1_sampler(work.version, work.request.sampler, device, rows)
    each, why = _bytes_per_logit(kind, width, work)
    shared = 4 * min(_MULTIPROCESSORS, rows) * vocabulary if kind == "triton" else 0
    states = (step.max_num_batched_tokens + rows * (1 if is_v2 else 2)) * hidden * width
    logits = ceil(each * rows * vocabulary)
    return Peak(
        bytes=logits + shared + states,
        formula=f"sampler: {each:g} B x {rows:,} sequences x vocabulary {vocabulary:,}"
        f"{f' + {shared:,} B of top-k' if shared else ''} + {states:,} B of hidden states",
        source=why,
        error_bytes=ceil(SAMPLER_ERROR * (logits + shared)),
    )


def _bytes_per_logit(kind: Sampler, width: int, work: Workload) -> tuple[float, str]:
    """The logits as the model computes them, `width` bytes each, and what sampling adds. A float32
    model's are not copied."""
    copy = 4 if width < 4 else 0
    if kind == "sort":
        return SORTED_BYTES + (width + copy - 6), SORTED_SOURCE
    if kind != "none":
        what = "Triton's top-k and top-p" if kind == "triton" else "FlashInfer"
        return width + copy + 8, f"{what}: float32 logits, and two more of their size"
    if v2_copies_logits(work.version):
        return width + copy, "the V2 runner: logits and their float32 copy"
    tp = work.request.tp
    gathered = width + width / tp if tp > 1 else 0  # each rank's part, and all before their order
    return width + gathered, "the V2 runner: logits alone, as gathered from the ranks"
