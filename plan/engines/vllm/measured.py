"""Figures of vLLM's memory that its source does not give: measured at starts, each with where.

`tests/support/engines/start_up_logs.json` has the logs, `bench/engine_budget.py` holds a file of
measured starts against plans; docs/engines.md says which constants were fitted to which, and both
errors.
"""

from typing import NamedTuple

from ...devices import Device
from ..version import Version

GIB = 2**30


class Measured(NamedTuple):
    """`gib` more or less `error_gib`."""

    gib: float
    error_gib: float
    source: str


# Bytes per logit, that is, per sequence and entry of the vocabulary, where the sampler sorts: two
# of logits, four of their float32 copy, the rest the sort's own, which torch does not document.
SORTED_BYTES = 38.0
SORTED_SOURCE = "37.8 to 38.1 B in seven start-up logs of 0.9 to 0.15"

# What the libraries take beside torch, from the engine's first look at the device to the end of its
# profile: kernels, workspaces of libraries, and what communication takes after that look.
_ALONE = (
    ((0, 18), Measured(0.25, 0.10, "0.24 to 0.26 GiB in measured starts of 0.19, once 0.46")),
    ((0,), Measured(0.13, 0.10, "0.02 to 0.13 GiB in start-up logs of 0.9 to 0.17")),
)
_STAGES = Measured(0.10, 0.15, "0.07 GiB on the first stage in measured starts of 0.19")
_PARALLEL = (
    # torch 2.10, and NCCL with it, came with 0.16
    ((0, 16), Measured(1.3, 0.9, "not measured: between 0.55 GiB in 0.11 and 2.1 in 0.19")),
    ((0,), Measured(0.55, 0.60, "0.54 and 0.55 GiB on two devices in start-up logs of 0.11")),
)
_SWITCHED_SINCE = (0, 18)
_UNSWITCHED = Measured(
    0.2, 0.4, "0.13 GiB with tp on devices of 79.3 GiB (vllm-project/vllm#50722), 0.09 on four A30"
)
_NODE_RANKS = 8  # devices of one machine
_NODES = Measured(4.0, 1.5, "about 4 GiB in measured starts of 0.19 with 16 ranks on two machines")
_ROCM = Measured(0.5, 0.8, "0.2 and 1.0 GiB in two start-up logs on MI300X")
_ROCM_RANKS = Measured(
    1.3, 1.3, "not measured with tp on ROCm: 0.2 and 1.0 GiB in two start-up logs on one MI300X"
)
# Devices that a switch joins, over which NCCL reduces with buffers of its own.
_SWITCHED = ("h100", "h200", "h20", "h800", "b200", "b300", "gb200")
_UNJOINED = ("h100-pcie", "h100-nvl")


def outside_torch(version: Version, tp: int, pp: int, device: Device, dp: int = 1) -> Measured:
    """Memory that torch does not account for, on a rank of `tp` x `pp` x `dp`. Ranks of data
    parallel talk as those of tp do; what their libraries for experts take was not measured."""
    if dp > 1:
        found = outside_torch(version, tp * dp, pp, device)
        source = f"not measured with data parallel; with tp {tp * dp}: {found.source}"
        return Measured(found.gib, found.error_gib + 1.0, source)
    if tp == 1:
        alone = next(found for since, found in _ALONE if version.at_least(*since))
        return _STAGES if pp > 1 else _ROCM if device.vendor == "AMD" else alone
    if not version.at_least(*_SWITCHED_SINCE):
        return next(found for since, found in _PARALLEL if version.at_least(*since))
    if tp * pp > _NODE_RANKS:
        return _NODES
    if device.vendor == "AMD":
        return _ROCM_RANKS
    if device.key in _UNJOINED or not device.key.startswith(_SWITCHED):
        return _UNSWITCHED
    size = 2.02 + 0.03 * tp
    return Measured(size, 0.25, "2.06 to 2.21 GiB in measured starts of 0.19 with tp 2 and 4")


# What the engine takes CUDA graphs to need (`Estimated CUDA graph memory`): a first capture, and
# the nodes of each further graph, as many as the model has layers.
GRAPHS_FIRST, GRAPHS_LAYER, GRAPHS_ERROR = 0.30, 0.016, 0.40
GRAPHS_EXPERTS, GRAPHS_EXPERTS_ERROR = 0.25, 1.0  # 5.0 GiB and more were estimated, too
GRAPHS_ROCM = Measured(3.8, 2.5, "3.9 GiB captured in a start-up log on MI300X")
GRAPHS_SIZES = 51  # batch sizes up to 512 that are captured, by default
GRAPHS_SOURCE = "0.5 to 1.9 GiB estimated in measured starts of 0.19, of 8 to 80 layers"

# Where device and host share memory, what the host takes meanwhile counts as the engine's.
SHARED = Measured(1.5, 2.5, "0.6, 1.3 and 4.1 GiB in three start-up logs on GB10")

# The share of an estimate of a forward pass by which measured ones differ from it, and of samplers.
FORWARD_ERROR, SAMPLER_ERROR = 0.3, 0.02
STEP_ERROR = 0.03  # GiB: what rounds to pages of the allocator
# GiB: recurrent layers keep more in a pass than is counted, 0.8 in a start-up log of Qwen3-Next.
STATES_ERROR = 0.8
TOWER = Measured(0.5, 0.5, "start-up logs of five multimodal models: 0 to 1.1 GiB")
