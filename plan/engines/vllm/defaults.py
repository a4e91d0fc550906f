"""What vLLM takes where a start does not say: utilisation, tokens and sequences of a step.

From vllm/engine/arg_utils.py and vllm/config of the versions named.
"""

from typing import NamedTuple

from ...devices import Device
from ...request import PlanRequest, Usage
from ..refusals.platforms import has_capability
from ..version import Version

_GIB = 2**30
_SMALL_STEP = ("gb10",)  # whatever their memory
_A100, _A100_SMALL_SINCE = "a100", (0, 9)  # vllm-project/vllm#17885
_LOWERED_SINCE = (0, 10, 2)  # before, a start with fewer tokens than the default sequences fails
_LARGE, _HUGE, _HUGE_STEP_SINCE = 70 * _GIB, 160 * _GIB, (0, 28)


def is_hopper_or_newer(device: Device) -> bool:
    """Whether kernels for Hopper run on it; a device of which only a size is known may be one."""
    return not device.platform or has_capability(device, "9.0")


def is_hopper(device: Device | None) -> bool:
    """Whether it is a Hopper; one that is not known is taken for it."""
    return device is None or not device.platform or _generation(device) == "9"


def is_blackwell(device: Device | None) -> bool:
    """Whether it is a data centre's Blackwell."""
    return device is not None and device.platform == "cuda" and _generation(device) == "10"


def _generation(device: Device) -> str:
    """The whole part of CUDA's compute capability."""
    return (device.capability or "").partition(".")[0]


class StepLimits(NamedTuple):
    """The most tokens and sequences of one step of the scheduler."""

    max_num_batched_tokens: int
    max_num_seqs: int


def default_utilisation(version: Version) -> float:
    """`--gpu-memory-utilization`: 0.92 since 0.20.0, where CUDA graphs became part of it."""
    return 0.92 if version.at_least(0, 20) else 0.90


def counts_graphs(version: Version, device: Device | None = None) -> bool:
    """Whether an estimate of CUDA graphs is taken off the budget (vllm-project/vllm#30515: possible
    in 0.18 and 0.19, the default since 0.20.0; with ROCm since 0.26). Before, they lie outside of
    it."""
    is_rocm = device is not None and device.vendor == "AMD"
    return version.at_least(0, 26 if is_rocm else 20)


def default_step(version: Version, device: Device | None, usage: Usage) -> StepLimits:
    """`--max-num-batched-tokens` and `--max-num-seqs` by the device; without one, a large one's."""
    memory = _LARGE if device is None else device.usable_memory
    if memory < _LARGE or (device is not None and _has_small_step(device, version)):
        tokens = {"server": 2048, "offline": 8192}[usage]
        return StepLimits(max_num_batched_tokens=tokens, max_num_seqs=256)
    tokens = {"server": 8192, "offline": 16384}[usage]
    if memory >= _HUGE and version.at_least(*_HUGE_STEP_SINCE):
        tokens = 16384
    return StepLimits(max_num_batched_tokens=tokens, max_num_seqs=1024)


def _has_small_step(device: Device, version: Version) -> bool:
    if device.key.startswith(_A100):
        return version.at_least(*_A100_SMALL_SINCE)
    return device.key.startswith(_SMALL_STEP)


def step_limits(version: Version, device: Device | None, request: PlanRequest) -> StepLimits:
    """What was asked for, else the defaults, of sequences no more than tokens since 0.10.2."""
    default = default_step(version, device, request.usage)
    tokens = request.max_num_batched_tokens or default.max_num_batched_tokens
    most = tokens if version.at_least(*_LOWERED_SINCE) else default.max_num_seqs
    return StepLimits(
        max_num_batched_tokens=tokens,
        max_num_seqs=request.max_num_seqs or min(default.max_num_seqs, most),
    )


def in_flight_tokens(
    version: Version, max_num_batched_tokens: int, pp: int = 1, *, runs_ahead: bool = True
) -> int:
    """Tokens that may be scheduled and not yet done: those of one step until 0.25, then those of
    every step under way, one for each pipeline stage and one more if the scheduler runs ahead
    (vllm-project/vllm#47728; VllmConfig.max_in_flight_tokens)."""
    return max_num_batched_tokens * (pp + runs_ahead if version.at_least(0, 26) else 1)
