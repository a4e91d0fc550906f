"""TensorRT-LLM: blocks of K/V memory in a share of what is free after loading.

From cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py: the tokens of a pool are free memory x
free_gpu_memory_fraction over the bytes of a token of all layers, in whole blocks. (Layers of
different windows have pools of their own there, in shares that only the log says.)
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil

from headcount.model.mixers import fills

from ..budget import Budget, Term
from ..devices import Device
from ..overhead import plan_overhead
from ..planned_model import PlannedModel
from ..request import Workload
from ..served import as_served
from .budget_terms import runtime, share_of
from .cache_names import AUTO, CacheNames
from .engine import Engine
from .launch import Launch, beyond_maximum, option, served
from .layers import LayerCache
from .loaded_weights import loaded_weights, stage_weights
from .paged import paged_cache_type, paged_caches
from .pool import CachePool
from .staged_pool import StagedPool

FREE_FRACTION, _BLOCK = 0.9, 32  # KvCacheConfig: free_gpu_memory_fraction, tokens_per_block
_STEP_TOKENS, _SEQUENCES = 8192, 2048  # max_num_tokens and max_batch_size of the LLM API
# _VALID_KV_CACHE_DTYPES of tensorrt_llm/_torch/pyexecutor/model_loader.py
CACHES = CacheNames(
    engine="TensorRT-LLM", option="--kv_cache_dtype", since={"fp8": (), "nvfp4": ()}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockPool(CachePool):
    """Blocks of `size` tokens of all `layers`; one with a window needs no more than it sees."""

    layers: tuple[LayerCache, ...]
    size: int

    @property
    def block_size(self) -> int | None:
        return self.size

    def bytes_per_token(self, within: int | None) -> int:
        return sum(n.token_bytes for n in self.layers if not fills(n.window, within))

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        return batch_size * sum(
            self._tokens(layer, context) * layer.token_bytes + layer.state_bytes
            for layer in self.layers
        )

    def _tokens(self, layer: LayerCache, context: int) -> int:
        seen = context if layer.window is None else min(layer.window, context)
        return -(-seen // self.size) * self.size

    def num_blocks(self, available: Sequence[int]) -> int | None:
        block = self.size * sum(layer.token_bytes for layer in self.layers)
        return max(0, min(available)) // block if block else 0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return (self.num_blocks(available) or 0) * self.size

    def concurrency(self, available: Sequence[int], context: int) -> float:
        each = self.needed(context, 1)
        return max(0, min(available)) / each if each else 0.0


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    found = paged_caches(model, work)
    size, pp = work.request.block_size or _BLOCK, work.request.pp
    pools = [BlockPool(layers=found.of_stage(stage), size=size) for stage in range(pp)]
    return pools[0] if pp == 1 else StagedPool(stages=tuple(pools))


def _budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """What is free after loading and a profiled step, of which a fraction is left alone."""
    assert device is not None
    request = work.request
    fraction = FREE_FRACTION if request.utilisation is None else request.utilisation
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


def _most_at_once(model: PlannedModel, device: Device | None, work: Workload) -> int:
    return work.request.max_num_seqs or _SEQUENCES


_DTYPES = dict.fromkeys(("float16", "bfloat16"), "")
_UNKNOWN = ("float32", "nf4", "float8_e5m2")


def _launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    found = served(
        model, work.request.dtype, engine="tensorrt-llm", on_loading=_DTYPES, unknown=_UNKNOWN
    )
    if found.name is None:
        return Launch(command=None, refusals=found.refusals)
    words = [f"trtllm-serve {found.name}", *_options(work)]
    file = [f"{key}: {value}" for key, value in _of_file(work, kv_tokens)]
    notes = list(found.notes)
    if file:
        words.append("--extra_llm_api_options config.yaml")
        notes.append(
            f"config.yaml has to hold kv_cache_config: {{{', '.join(file)}}}: no option says it."
        )
    if beyond := beyond_maximum(model, work):
        notes.append(f"The context is beyond the model's {beyond:,} tokens: nothing checks it.")
    return Launch(command=" ".join(words), notes=tuple(notes))


def _options(work: Workload) -> Iterator[str]:
    request = work.request
    yield f"--max_seq_len {work.context}"
    yield from option("--tp_size", request.tp, 1)
    yield from option("--pp_size", request.pp, 1)
    yield from option("--max_batch_size", request.max_num_seqs)
    yield from option("--max_num_tokens", request.max_num_batched_tokens)
    if request.utilisation is not None and request.kv_memory is None:
        yield f"--kv_cache_free_gpu_memory_fraction {request.utilisation:g}"


def _of_file(work: Workload, kv_tokens: int) -> Iterator[tuple[str, object]]:
    """What only a file of settings says (KvCacheConfig)."""
    request = work.request
    if request.kv_memory is not None:
        yield "max_tokens", kv_tokens
    if (cache := CACHES.own(request.kv_dtype, work.version, work.compute_dtype)) != AUTO:
        yield "dtype", cache
    if request.block_size is not None:
        yield "tokens_per_block", request.block_size


ENGINE = Engine(
    name="tensorrt-llm",
    as_run=as_served,
    budget=_budget,
    pool=_pool,
    launch=_launch,
    cache_type=paged_cache_type(CACHES),
    weights=loaded_weights,
    options=frozenset({"version", "pp", "block_size", "max_num_seqs", "max_num_batched_tokens"}),
    narrower_caches=("fp8",),
    most_at_once=_most_at_once,
    platforms=lambda version: {"cuda": "8.0"},  # docs/source/supported-hardware: from Ampere on
)
