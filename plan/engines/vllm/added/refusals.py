"""What vLLM refuses of what a start adds: drafts, adapters, experts, offloaded weights."""

from collections.abc import Iterator

from headcount.arch.config_parts import has_experts
from headcount.model.errors import HeadcountError

from ....planned_model import PlannedModel
from ....request import Workload
from .drafting import draft_refused
from .spread import uneven_experts

# Until 0.19 the V1 runner made its batch anew for blocks of several groups, and not with weights in
# the host's memory (may_reinitialize_input_batch of vllm/v1/worker/gpu_model_runner.py).
_GROUPS_OFFLOAD_SINCE = (0, 20)


def added_refusals(model: PlannedModel, work: Workload, groups: int) -> Iterator[str]:
    """For which it would not start; `groups` of layers keep different tokens."""
    yield from draft_refused(model, work)
    if work.request.enable_lora:
        from .adapters import adapters_refused

        yield from adapters_refused(model, work)
    yield from _experts(model, work)
    is_new = work.version.at_least(*_GROUPS_OFFLOAD_SINCE)
    if work.request.cpu_offload_gb and groups > 1 and not is_new:
        yield "--cpu-offload-gb with layers that keep different tokens is taken since 0.20"


def _experts(model: PlannedModel, work: Workload) -> Iterator[str]:
    request = work.request
    if request.enable_expert_parallel and not has_experts(model.config, model.spec.model_type):
        yield "--enable-expert-parallel needs experts, and the model has none"
    elif request.num_redundant_experts and not request.enable_expert_parallel:
        yield "redundant experts need --enable-expert-parallel"
    elif request.num_redundant_experts:
        try:
            yield from uneven_experts(model, work)
        except HeadcountError:  # what is not understood is told where the weights are weighed
            return
