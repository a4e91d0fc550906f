"""What vLLM takes where a start does not say: utilisation, tokens and sequences of a step.

From vllm/engine/arg_utils.py and vllm/config of the versions named.
"""

from dataclasses import dataclass
from typing import Literal

from ..devices import Device
from .version import Version

Usage = Literal["server", "offline"]
_GIB = 2**30
_LARGE, _HUGE = 70 * _GIB, 160 * _GIB


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """The most tokens and sequences of one step of the scheduler."""

    max_num_batched_tokens: int
    max_num_seqs: int


def default_utilisation(version: Version) -> float:
    """`--gpu-memory-utilization`: 0.92 since 0.20.2, where CUDA graphs became part of it."""
    return 0.92 if version.at_least(0, 20, 1) else 0.90


def counts_graphs(version: Version) -> bool:
    """Whether an estimate of CUDA graphs is taken off the budget (vllm-project/vllm#30515: possible
    before, the default since 0.20.2). Before, they lie outside of it."""
    return version.at_least(0, 20, 1)


def default_step(version: Version, device: Device | None, usage: Usage) -> Step:
    """`--max-num-batched-tokens` and `--max-num-seqs` by the device; without one, a large one's."""
    memory = _LARGE if device is None else device.usable_memory
    is_a100 = device is not None and "a100" in device.key.lower()
    if memory < _LARGE or is_a100:
        tokens = {"server": 2048, "offline": 8192}[usage]
        return Step(max_num_batched_tokens=tokens, max_num_seqs=256)
    tokens = {"server": 8192, "offline": 16384}[usage]
    if memory >= _HUGE and _is_recent(version):
        tokens = 16384
    return Step(max_num_batched_tokens=tokens, max_num_seqs=1024)


def in_flight_tokens(version: Version, max_num_batched_tokens: int) -> int:
    """Tokens that may be scheduled and not yet done: of two steps where the scheduler runs ahead
    (vllm-project/vllm#47728, July 2026), else of one."""
    return max_num_batched_tokens * (2 if _is_recent(version) else 1)


def _is_recent(version: Version) -> bool:
    """The first release with both rules is not known; 0.20.2 has neither and 0.33 has them."""
    return version.at_least(0, 26)
