"""TensorRT-LLM: blocks of K/V memory in a share of what is free after loading.

From cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py: the tokens of a pool are free memory x
free_gpu_memory_fraction over the bytes of a token, in whole blocks. Windows are not told apart:
each window has a pool of its own there, in shares that the log says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from shlex import quote

from ..budget import Budget, Term
from ..devices import Device
from ..overhead import plan_overhead
from ..planned_model import PlannedModel
from ..request import Workload
from .budget_terms import runtime, share_of
from .engine import Engine, option
from .layers import StagedCaches
from .loaded_weights import loaded_weights, stage_weights
from .paged import paged_cache_type, paged_caches
from .pool import CachePool
from .staged_pool import StagedPool

_FRACTION, _BLOCK = 0.9, 32  # KvCacheConfig: free_gpu_memory_fraction, tokens_per_block
_STEP_TOKENS = 8192  # max_num_tokens of the LLM API


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPool(CachePool):
    """`cell_bytes` of a token of all layers; `state_bytes` of a sequence."""

    cell_bytes: int
    state_bytes: int
    size: int

    @property
    def block_size(self) -> int | None:
        return self.size

    def bytes_per_token(self, within: int | None) -> int:
        return self.cell_bytes

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        cells = -(-context // self.size) * self.size
        return batch_size * (cells * self.cell_bytes + self.state_bytes)

    def num_blocks(self, available: Sequence[int]) -> int | None:
        block = self.cell_bytes * self.size
        return max(0, min(available)) // block if block else 0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return (self.num_blocks(available) or 0) * self.size

    def concurrency(self, available: Sequence[int], context: int) -> float:
        each = self.needed(context, 1)
        return max(0, min(available)) / each if each else 0.0


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    found = paged_caches(model, work)
    size, pp = work.request.block_size or _BLOCK, work.request.pp
    if pp == 1:
        return _block_pool(found, 0, size)
    return StagedPool(stages=tuple(_block_pool(found, stage, size) for stage in range(pp)))


def _block_pool(found: StagedCaches, stage: int, size: int) -> BlockPool:
    own = found.of_stage(stage)
    return BlockPool(
        cell_bytes=sum(layer.token_bytes for layer in own),
        state_bytes=sum(layer.state_bytes for layer in own),
        size=size,
    )


def _budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """What is free after loading and a profiled step, of which a fraction is left alone."""
    assert device is not None
    request = work.request
    fraction = _FRACTION if request.utilisation is None else request.utilisation
    overhead = plan_overhead(model.spec, work, step_limit=None)
    step = overhead.forward_bytes(request.max_num_batched_tokens or _STEP_TOKENS, 1)
    activations = Term(
        key="activations",
        title="Activations",
        bytes=step,
        formula=f"forward of {request.max_num_batched_tokens or _STEP_TOKENS:,} tokens",
        source="widths of the layers",
        error_bytes=step,
    )
    allowed = share_of(device, 1.0)
    others = (runtime(1.0 if request.ranks == 1 else 2.0, "context and workspaces"), activations)
    return tuple(
        Budget(
            allowed=allowed,
            fixed=(weights, *others, _left_alone(fraction, allowed, weights, others)),
        )
        for weights in stage_weights(model, work)
    )


def _left_alone(fraction: float, allowed: Term, weights: Term, others: tuple[Term, ...]) -> Term:
    free = allowed.bytes - weights.bytes - sum(term.bytes for term in others)
    return Term(
        key="left_free",
        title="Left free",
        bytes=max(0, ceil(free * (1 - fraction))),
        formula=f"{1 - fraction:g} of what is free (free_gpu_memory_fraction {fraction:g})",
    )


def _launch(model_id: str, work: Workload, kv_tokens: int) -> Iterator[str]:
    request = work.request
    yield f"trtllm-serve {quote(model_id)} --max_seq_len {work.context}"
    yield from option("--tp_size", request.tp, 1)
    yield from option("--pp_size", request.pp, 1)
    yield from option("--max_batch_size", request.max_num_seqs)
    yield from option("--max_num_tokens", request.max_num_batched_tokens)
    if request.utilisation is not None:
        yield f"--kv_cache_free_gpu_memory_fraction {request.utilisation:g}"


ENGINE = Engine(
    name="tensorrt-llm",
    budget=_budget,
    pool=_pool,
    launch=_launch,
    cache_type=paged_cache_type,
    weights=loaded_weights,
    options=frozenset({"version", "pp", "block_size", "max_num_seqs", "max_num_batched_tokens"}),
    narrower_caches=("fp8",),
)
