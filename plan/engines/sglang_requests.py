"""How many requests SGLang runs at once, and how many recurrent states each takes.

From the files named, of sglang/srt of 0.5.5, 0.5.9, 0.5.16 and 0.5.23.
"""

from ..devices import Device
from ..planned_model import PlannedModel
from ..request import Workload

# _calculate_mamba_ratio of mem_cache/kv_cache_configurator.py: three, and since a version two more
# that are written while requests decode, of the classes that have kernels for it.
_STATES, _STATES_WRITTEN, _WRITTEN_SINCE = 3, 2, (0, 5, 16)
_NOT_WRITTEN = frozenset({"lfm2", "lfm2_moe", "jet_nemotron", "zaya"})


def states_each(model: PlannedModel, work: Workload) -> int:
    """Recurrent states of one request, with prefix caching, which is the default."""
    written = work.version.at_least(*_WRITTEN_SINCE) and model.spec.model_type not in _NOT_WRITTEN
    return _STATES + (_STATES_WRITTEN if written else 0)


# max_running_requests: at most so many (resolve_max_num_reqs of mem_cache/kv_cache_configurator.py,
# which fewer than 8 requests at the whole context make less, but never so few); with speculation
# and of DeepSeek-V4 as arg_groups/speculative_hook.py and deepseek_v4_hook.py set it.
_RUNNING, _SPECULATING, _OF_TYPE = 4096, 48, {"deepseek_v4": 256}


def most_running(model: PlannedModel, device: Device | None, work: Workload) -> int:
    """Of all ranks of data parallel: with its attention they share a limit."""
    request = work.request
    most = request.max_num_seqs
    if most is None and request.speculation is not None:
        most = _SPECULATING
    if most is None:
        most = _OF_TYPE.get(model.spec.model_type)
    if most is None:
        return _RUNNING * request.dp
    return request.dp * max(1, most // (request.dp if request.enable_dp_attention else 1))
