"""What vLLM refuses of what a start adds: drafts, adapters, experts, offloaded weights."""

from headcount.model.errors import HeadcountError

from ...planned_model import PlannedModel
from ...request import Workload
from .adapters import check_adapters
from .blocks import BlockTable
from .drafting import check_draft
from .spread import vllm_spread

# Until 0.19 the V1 runner made its batch anew for blocks of several groups, and not with weights in
# the host's memory (may_reinitialize_input_batch of vllm/v1/worker/gpu_model_runner.py).
_GROUPS_OFFLOAD_SINCE = (0, 20)


def check_added(model: PlannedModel, work: Workload) -> None:
    """Raises HeadcountError for what no start would take, whatever its memory."""
    check_draft(model, work)
    check_adapters(model, work)
    vllm_spread(model, work)
    request = work.request
    if request.num_redundant_experts and not request.enable_expert_parallel:
        raise HeadcountError("--num-redundant-experts needs --enable-expert-parallel")


def check_offload(work: Workload, table: BlockTable) -> None:
    """Raises HeadcountError for weights in the host's memory beside several groups of layers."""
    if not work.request.cpu_offload_gb or work.version.at_least(*_GROUPS_OFFLOAD_SINCE):
        return
    if len(table.groups) > 1:
        raise HeadcountError(
            f"vLLM {work.version.text} takes no --cpu-offload-gb with a model whose layers keep"
            " different tokens; it does since 0.20"
        )
