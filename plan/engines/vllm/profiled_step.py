"""The peak of the step that vLLM profiles before it gives the rest to its cache.

A forward pass of `max_num_batched_tokens` tokens, then sampling for `max_num_seqs` sequences; the
hidden states of the pass are kept meanwhile (profile_run and _dummy_sampler_run of
vllm/v1/worker/gpu_model_runner.py and vllm/v1/worker/gpu/model_runner.py). What is alive when a
sampler is at its peak can be read in its source; of the sort alone it was measured.
"""

from math import ceil
from typing import NamedTuple

from headcount.arch.formats.of_configs import quantization_config

from ...budget import Term
from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from .added.drafting import REJECTION_ERROR, handed_elements, rejection_bytes
from .added.spread import vllm_spread
from .defaults import StepLimits, is_hopper_or_newer, step_limits
from .encoder import EncoderShare, encoder_share
from .forward import expert_elements, forward_elements
from .measured import (
    FORWARD_ERROR,
    GIB,
    SAMPLER_ERROR,
    SORTED_BYTES,
    SORTED_SOURCE,
    STATES_ERROR,
    STEP_ERROR,
)
from .runner import Sampler, has_states, uses_v2, v1_sampler, v2_copies_logits

# The kernel for top-k and top-p has a row of logits in float32 for each multiprocessor: 132 on
# H100, 108 on A100, 142 on L40S, 148 on B200.
_MULTIPROCESSORS = 132
# cuBLAS's workspace, from torch's allocator (CUDABlas.cpp of PyTorch).
_CUBLAS, _CUBLAS_HOPPER = 8320 * 2**10, 32 * 2**20
_MIB = 2**20
# Pieces of tokens in which experts work, and since when they take a step whole.
_PIECES = (((0, 12), 16_384), ((0,), 32_768))
_WHOLE_SINCE = (0, 18)
# Workspaces of experts stay for later steps (WorkspaceManager of vllm/v1/worker/workspace.py, which
# all experts use since then).
_EXPERTS_STAY_SINCE = (0, 14)


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
    experts = _workspaces(model, work, step)
    stays = experts if work.version.at_least(*_EXPERTS_STAY_SINCE) else 0
    gathered = _gathered(model, work, step)
    peaks = [_forward(model, work, step, experts - stays + gathered, is_last=is_last)]
    if is_last and model.spec.vocab_size and model.spec.is_cached:
        peaks.append(_sampling(model, device, work, step))
    beside = _beside(max(peaks, key=lambda found: found.bytes), share, stays)
    peak = max(beside, _own_pass(share), key=lambda found: found.bytes)
    unknown = STEP_ERROR + (STATES_ERROR if has_states(model.spec) else 0)
    unmeasured = experts + gathered if gathered else 0  # no start with data parallel was
    workspace = _CUBLAS_HOPPER if is_hopper_or_newer(device) else _CUBLAS
    return Term(
        key="activations",
        title="Activations",
        bytes=peak.bytes + workspace,
        formula=f"{peak.formula} + {workspace / _MIB:.3g} MiB of cuBLAS",
        source=peak.source,
        error_bytes=peak.error_bytes + ceil(unknown * GIB) + unmeasured,
    )


def _beside(peak: Peak, share: EncoderShare, stays: int) -> Peak:
    """With what an encoder and experts leave in memory."""
    kept = f" + {stays:,} B of experts" if stays else ""
    return Peak(
        bytes=peak.bytes + share.kept + stays,
        formula=f"{peak.formula}{share.formula}{kept}",
        source=peak.source,
        error_bytes=peak.error_bytes + share.error_bytes + ceil(FORWARD_ERROR * stays),
    )


def _own_pass(share: EncoderShare) -> Peak:
    """That of an encoder, before all else."""
    return Peak(
        bytes=share.own,
        formula=share.own_formula,
        source="widths of the encoder; about 1.8 GiB in a start-up log of Qwen3.5-9B with 0.19",
        error_bytes=ceil(FORWARD_ERROR * share.own),
    )


def _workspaces(model: PlannedModel, work: Workload, step: StepLimits) -> int:
    """Bytes of the experts' workspaces; MXFP4's kernels have none that stay."""
    settings = quantization_config(model.config) or {}
    if settings.get("quant_method") == "mxfp4":
        return 0
    width, ranks = ceil(work.compute_bits / 8), vllm_spread(model, work).experts_tp
    return _expert_tokens(work, step) * expert_elements(model, ranks) * width


def _expert_tokens(work: Workload, step: StepLimits) -> int:
    """Experts see the tokens of all ranks of data parallel, in pieces until 0.18
    (VLLM_FUSED_MOE_CHUNK_SIZE)."""
    tokens = step.max_num_batched_tokens * work.request.dp
    if work.request.dp == 1 or work.version.at_least(*_WHOLE_SINCE):
        return tokens
    piece = next(size for since, size in _PIECES if work.version.at_least(*since))
    return min(tokens, piece)


def _gathered(model: PlannedModel, work: Workload, step: StepLimits) -> int:
    """Bytes of the hidden states that experts read and write for all ranks of data parallel
    (allgather_reducescatter, the default --all2all-backend)."""
    if work.request.dp == 1 or "experts" not in dict(vllm_spread(model, work).parts):
        return 0
    tokens = step.max_num_batched_tokens * work.request.dp
    return 2 * tokens * model.spec.hidden_size * ceil(work.compute_bits / 8)


def _forward(
    model: PlannedModel, work: Workload, step: StepLimits, experts: int, *, is_last: bool
) -> Peak:
    """`experts` are bytes for experts that are freed with the pass."""
    tokens, width = step.max_num_batched_tokens, ceil(work.compute_bits / 8)
    found = forward_elements(model, work.request.tp)
    handed = 0 if is_last else 2 * model.spec.hidden_size  # to the next stage
    drafts = handed_elements(model, work)
    size = tokens * (found.elements + handed + drafts) * width + experts
    return Peak(
        bytes=size,
        formula=f"forward: {tokens:,} tokens x ({found.formula}"
        f"{f' + {handed:,} to the next stage' if handed else ''}"
        f"{f' + {drafts:,} to the draft' if drafts else ''}) x {width} B"
        f"{f' + {experts:,} B of experts' if experts else ''}",
        source="widths of the layers; 0.85, 1.05 and 1.10 GiB were measured with 0.19 where 0.87,"
        " 1.06 and 1.06 are planned",
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
    rejects = None if is_v2 else rejection_bytes(work, sorts=kind == "sort")
    if rejects is not None and rejects > each:
        each, why = rejects, "the V1 runner's rejection sampler, by its source: not measured"
    shared = 4 * min(_MULTIPROCESSORS, rows) * vocabulary if kind == "triton" else 0
    states = (step.max_num_batched_tokens + rows * (1 if is_v2 else 2)) * hidden * width
    logits = ceil(each * rows * vocabulary)
    return Peak(
        bytes=logits + shared + states,
        formula=f"sampler: {each:g} B x {rows:,} sequences x vocabulary {vocabulary:,}"
        f"{f' + {shared:,} B of top-k' if shared else ''} + {states:,} B of hidden states",
        source=why,
        error_bytes=ceil((REJECTION_ERROR if rejects else SAMPLER_ERROR) * (logits + shared)),
    )


def _bytes_per_logit(kind: Sampler, width: int, work: Workload) -> tuple[float, str]:
    """The logits as the model computes them, `width` bytes each, and what sampling adds. Those of
    a float32 model count twice, too: 2.21 GiB were measured for Llama-3.1-8B with 0.19."""
    if kind == "sort":
        return SORTED_BYTES + (width - 2), SORTED_SOURCE
    if kind != "none":
        what = "Triton's top-k and top-p" if kind == "triton" else "FlashInfer"
        return width + 12, f"{what}: logits, a float32 copy, and two more of its size"
    if v2_copies_logits(work.version):
        return width + 4, "the V2 runner: logits and their float32 copy"
    tp = work.request.tp
    gathered = width + width / tp if tp > 1 else 0  # each rank's part, and all before their order
    return width + gathered, "the V2 runner: logits alone, as gathered from the ranks"
