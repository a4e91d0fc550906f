"""SGLang: a pool of cells, each one token of all layers, in a fixed share of the memory.

From sglang/srt/model_executor/pool_configurator.py, arg_groups/memory_hook.py and
mem_cache/kv_cache_configurator.py of 0.5.23.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from headcount.model.mixers import LatentAttention, fills

from ..budget import Budget, Term
from ..devices import Device
from ..planned_model import PlannedModel
from ..request import Workload
from ..served import as_served
from ..stored import as_loaded, full_name
from .added.offload import moved_to_host, offloaded
from .added.sglang import (
    added_notes,
    added_options,
    added_refused,
    draft_layers,
    draft_term,
    sglang_spread,
)
from .added.sglang_adapters import (
    sglang_adapter_options,
    sglang_adapters,
    sglang_adapters_refused,
)
from .budget_terms import runtime, share_of
from .cache_names import AUTO
from .engine import Engine
from .launch import Launch, Served, beyond_maximum, gguf_file, option, served, wants_gguf
from .layers import LayerCache, stages_of
from .loaded_weights import loaded_weights, loaded_wide, padded_experts, stage_weights
from .paged import paged_caches
from .pool import CachePool
from .refusals.formats import Since, format_of, lacks_kernels
from .refusals.partition import MERGED_ATTENTION, CutRules, uneven_cuts
from .refusals.platforms import Platforms
from .rope_tables import rope_table
from .sglang_caches import CACHES, cache_notes, sglang_cache_refusals, sglang_cache_type
from .sglang_requests import most_running, states_each
from .staged_pool import StagedPool
from .version import Releases, Version

_GIB, _MIB = 2**30, 2**20
SWA_RATIO, STATE_RATIO = 0.8, 0.9  # swa_full_tokens_ratio, mamba_full_memory_ratio


@dataclass(frozen=True, kw_only=True, slots=True)
class SglangPool(CachePool):
    """`full_bytes` of one token in layers that keep all, those of what drafts, `draft_bytes`, among
    them; `swa_bytes` in those with a window, `state_bytes` of one recurrent state, of which a
    request takes `states_each`."""

    full_bytes: int
    swa_bytes: int
    state_bytes: int
    window: int | None
    states_each: int = 1
    page_size: int = 1
    draft_bytes: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def block_size(self) -> int | None:
        return self.page_size

    def bytes_per_token(self, within: int | None) -> int:
        return self.full_bytes + (0 if fills(self.window, within) else self.swa_bytes)

    @property
    def cell_bytes(self) -> int:
        """Bytes of a token of the pool: layers with a window keep a share of the tokens only."""
        if not self.full_bytes:
            return self.swa_bytes
        return self.full_bytes + ceil(SWA_RATIO * self.swa_bytes)

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        """Of tokens in whole pages, and of states, which get a share of their own."""
        tokens = batch_size * context if self.cell_bytes else 0
        if self.window is not None and self.full_bytes:
            tokens = max(tokens, ceil(batch_size * min(self.window, context) / SWA_RATIO))
        cells = -(-tokens // self.page_size) * self.page_size * self.cell_bytes
        states = batch_size * self.states_each * self.state_bytes
        if not states or not cells:
            return cells + states
        whole = 1 + STATE_RATIO
        return max(ceil(cells * whole), ceil(states * whole / STATE_RATIO))

    def unlogged(self, logged: int) -> int:
        """The pool of keys and values is logged with a page more than it counts, and without the
        draft's and that of recurrent state beside it."""
        if not self.cell_bytes:
            return logged
        page = self.page_size * (self.full_bytes + self.swa_bytes - self.draft_bytes)
        share = self.cell_bytes / (self.cell_bytes - self.draft_bytes)
        states = STATE_RATIO if self.state_bytes else 0
        return ceil((logged - page) * share * (1 + states))

    def num_blocks(self, available: Sequence[int]) -> int | None:
        return self._tokens(available) // self.page_size

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return self._tokens(available)

    def concurrency(self, available: Sequence[int], context: int) -> float:
        tokens = self._tokens(available)
        limits = [tokens / context] if self.full_bytes or self.swa_bytes else []
        if self.window is not None and self.full_bytes:
            limits.append(SWA_RATIO * tokens / min(self.window, context))
        if self.state_bytes:
            limits.append(self._state_budget(available) // self.state_bytes // self.states_each)
        return min(limits, default=0.0)

    def _tokens(self, available: Sequence[int]) -> int:
        left = min(available) - self._state_budget(available)
        if left <= 0 or not self.cell_bytes:
            return 0
        return left // self.cell_bytes // self.page_size * self.page_size

    def _state_budget(self, available: Sequence[int]) -> int:
        if not self.state_bytes:
            return 0
        free = max(0, min(available))
        if not self.cell_bytes:
            return free
        return int(free * STATE_RATIO / (1 + STATE_RATIO))

    def notes(self) -> Sequence[str]:
        found = [*self.remarks, "A cell of the pool is one token of all layers."]
        if self.window is not None and self.full_bytes:
            found.append(
                f"Layers with a window keep {SWA_RATIO:g} of the tokens (--swa-full-tokens-ratio)."
            )
        if self.state_bytes:
            found.append(
                f"Recurrent state gets {STATE_RATIO:g} of what keys and values get"
                f" (--mamba-full-memory-ratio); a request takes {self.states_each}, since cached"
                " prefixes keep some (--disable-radix-cache: 1)."
            )
        return found


def sglang_pool(layers: Sequence[LayerCache], *, page_size: int = 1, drafts: int = 0) -> SglangPool:
    """The pool of one rank. Layers that draft are taken to keep what those of the model keep
    (MHATokenToKVPool's configurator in model_executor/pool_configurator.py)."""
    windows = {n.window for n in layers if n.kind in ("sliding", "chunked")} - {None}
    full = [n.token_bytes for n in layers if n.kind in ("full", "latent")]
    drafted = sum(full) * drafts // len(full) if full else 0
    return SglangPool(
        full_bytes=sum(full) + drafted,
        draft_bytes=drafted,
        swa_bytes=sum(n.token_bytes for n in layers if n.kind in ("sliding", "chunked")),
        state_bytes=sum(layer.state_bytes for layer in layers),
        window=max((window for window in windows if window), default=None),
        page_size=page_size,
    )


def mem_fraction_static(total_bytes: int, *, ranks: int, is_latent: bool) -> float:
    """The default of --mem-fraction-static: what is left when steps and CUDA graphs have theirs.

    `total_bytes` is the device's visible memory. The chunk of a prefill and the largest batch of a
    graph go by the device's size as well.
    """
    memory = total_bytes / _MIB
    chunk, batch = _sizes(total_bytes / _GIB, ranks)
    graphs = 1536 if is_latent else 2 * batch + 8 * _prefill_sizes(chunk)
    reserved = 512 + 1.5 * max(chunk, 2048) + ranks / 8 * 1024 + graphs
    if total_bytes > 60 * _GIB:
        reserved = max(reserved, 10 * 1024)
    return round(max(0.1, (memory - reserved) / memory), 3)


def _prefill_sizes(chunk: int) -> int:
    return max(1, chunk // 512)


def _sizes(gib: float, ranks: int) -> tuple[int, int]:
    """Tokens of a prefill chunk, and the largest batch of a CUDA graph."""
    few = ranks < 4
    for limit, chunk, small, large in (
        (20, 2048, 8, 8),
        (35, 2048, 24, 80),
        (60, 4096, 32, 160),
        (160, 8192, 256, 512),
    ):
        if gib < limit:
            return chunk, small if few else large
    return 16384, 512


def _budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    assert device is not None
    ranks = work.request.ranks
    latent = any(isinstance(m, LatentAttention) for n in model.spec.layers for m in n.mixers)
    default = mem_fraction_static(device.usable_memory, ranks=ranks, is_latent=latent)
    allowed = share_of(device, work.request.utilisation or default, "mem_fraction_static")
    others = runtime(0.5 if ranks == 1 else 1.0, "context and communication")
    spread = sglang_spread(model, work)
    tables = (rope_table(model.spec, model.config), padded_experts(model, work, spread))
    stages = stages_of(work.request, len(model.spec.layers), sglang_stages)
    whole = tuple(stage_weights(model, work, *tables, stages=stages, spread=spread))
    weights = tuple(offloaded(model, work, whole, stages, spread))
    adapters = tuple(sglang_adapters(model, work, stages, spread))
    draft, last = tuple(draft_term(model, work)), len(weights) - 1
    wide = loaded_wide(model, device, work, others, stages=stages, spread=spread)
    is_first_wide = full_name(work.request.dtype or "") in _MADE_OF_ALL
    loading = tuple(wide) if is_first_wide else (None,) * len(weights)
    return tuple(
        Budget(
            allowed=allowed,
            fixed=(own, *adapters[n : n + 1], others, *(draft if n == last else ())),
            loading=loading[n],
        )
        for n, own in enumerate(weights)
    )


def _host(model: PlannedModel, work: Workload) -> tuple[Term, ...]:
    """Of --cpu-offload-gb."""
    stages = stages_of(work.request, len(model.spec.layers), sglang_stages)
    return moved_to_host(model, work, stages, sglang_spread(model, work))


def sglang_stages(layers: int, pp: int) -> tuple[int, ...]:
    """The pipeline stage of each layer: the last stages have one more where some are left over
    (get_pp_indices of sglang/srt/distributed/utils.py)."""
    each, left = divmod(layers, pp)
    counts = [each + (stage >= pp - left) for stage in range(pp)]
    return tuple(stage for stage, count in enumerate(counts) for _ in range(count))


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    """Each stage's cells are those of its own layers; all have as many as the one with fewest."""
    found = paged_caches(model, work, deal=sglang_stages)
    drafts = draft_layers(model, work)
    remarks = (*added_notes(model, work), *cache_notes(model))
    each = states_each(model, work)

    def of(layers: Sequence[LayerCache]) -> SglangPool:
        pool = sglang_pool(layers, page_size=work.request.block_size or 1, drafts=drafts)
        return replace(pool, remarks=remarks, states_each=each)

    if work.request.pp == 1:
        return of(found.caches)
    return StagedPool(stages=tuple(of(found.of_stage(n)) for n in range(work.request.pp)))


# What --quantization makes of 16 bit weights while it loads them (nvfp4_online and mxfp4 only make
# experts), and the first of the versions read that does. 8 bits are made of all weights once they
# are on the device (postprocess_weights of sglang/srt/model_loader/loader.py), 4 of each as it
# comes (BitsAndBytesModelLoader).
_ON_LOADING: dict[str, tuple[str, tuple[int, ...]]] = {
    **{name: (f"--dtype {name}", ()) for name in ("float16", "bfloat16", "float32")},
    "float8_e4m3fn": ("--quantization fp8", ()),
    "nf4": ("--load-format bitsandbytes --quantization bitsandbytes", ()),
    "mxfp8": ("--quantization mxfp8", (0, 5, 9)),
}
_MADE_OF_ALL = ("float8_e4m3fn", "mxfp8")
_UNKNOWN = ("float8_e5m2",)


def _launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    found = _served(model, work)
    if found.name is None:
        return Launch(command=None, refusals=found.refusals)
    before, notes = [], list(found.notes)
    if beyond := beyond_maximum(model, work):
        before.append("SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN=1")
        notes.append(
            f"what the model writes beyond its {beyond:,} tokens is nonsense, without a scaling of"
            " its rotary embeddings: SGLang refuses such a context unless this variable is set."
        )
    if (partition := work.request.pp_layer_partition) is not None:
        before.append(f"SGLANG_PP_LAYER_PARTITION={','.join(map(str, partition))}")
    serve = f"python -m sglang.launch_server --model-path {found.name}"
    words = [*before, serve, *found.words, *_options(work, kv_tokens)]
    return Launch(command=" ".join(words), notes=tuple(notes))


def _served(model: PlannedModel, work: Workload) -> Served:
    dtype = work.request.dtype
    if wants_gguf(model, dtype):
        mix = full_name(dtype) if dtype else None
        return gguf_file(model, mix, "--load-format gguf --quantization gguf")
    engine = f"sglang {work.version.text}"
    makes = {n: words for n, (words, at) in _ON_LOADING.items() if work.version.at_least(*at)}
    return served(model, dtype, engine=engine, on_loading=makes, unknown=_UNKNOWN)


def _options(work: Workload, kv_tokens: int) -> Iterator[str]:
    request = work.request
    yield f"--context-length {work.context}"
    yield from option("--tp-size", request.tp, 1)
    yield from option("--pp-size", request.pp, 1)
    if request.kv_memory is not None:
        yield f"--max-total-tokens {kv_tokens}"
    elif request.utilisation is not None:
        yield f"--mem-fraction-static {request.utilisation:g}"
    if (cache := CACHES.own(request.kv_dtype, work.version, work.compute_dtype)) != AUTO:
        yield f"--kv-cache-dtype {cache}"
    yield from option("--page-size", request.block_size)
    yield from option("--max-running-requests", request.max_num_seqs)
    yield from added_options(request)
    yield from sglang_adapter_options(request)


def _platforms(version: Version) -> Platforms:
    """maybe_downgrade_dtype_for_legacy_gpu of model_executor/model_runner.py, and the targets of
    sgl-kernel/setup_rocm.py. TPUs have an engine of their own (SGLang-Jax)."""
    return {"cuda": "7.5", "rocm": ("gfx942", "gfx950"), "xpu": None}


# get_min_capability of sglang/srt/layers/quantization of 0.5.23, of compressed-tensors that of its
# schemes of linear layers.
_LEAST: Mapping[str, Since] = {
    **dict.fromkeys(("fp8", "fbgemm_fp8", "mxfp4", "compressed-tensors"), (((0,), "8.0"),)),
    **{"awq": (((0,), "7.5"),), "modelopt, fp8": (((0,), "8.9"),)},
    **{"modelopt, nvfp4": (((0,), "8.0"),), "modelopt, mxfp8": (((0,), "10.0"),)},
}


def _refusals(model: PlannedModel, device: Device | None, work: Workload) -> Iterator[str]:
    """Fp8LinearMethod.validate_block_quant_shapes and the like; some models leave attention out of
    it (skip_block_quant_check)."""
    if device is not None and device.platform == "cuda":
        name = format_of(as_loaded(model, work.dtype))
        if (lack := lacks_kernels(name, device, work.version, _LEAST)) is not None:
            yield lack
    request = work.request
    rules = CutRules(
        amid_blocks=MERGED_ATTENTION,
        whole_experts=request.ep_size == request.tp,
        expert_ranks=request.tp // request.ep_size,
    )
    yield from uneven_cuts(as_loaded(model, work.dtype), work.request.tp, rules)
    yield from added_refused(model, work)
    yield from sglang_cache_refusals(model, device, work)
    yield from sglang_adapters_refused(work.request)


ENGINE = Engine(
    name="sglang",
    latents="mla",
    as_run=as_served,
    budget=_budget,
    host=_host,
    pool=_pool,
    launch=_launch,
    cache_type=sglang_cache_type,
    listed_as="SGLang",
    weights=loaded_weights,
    options=frozenset(
        {
            *("version", "pp", "pp_layer_partition", "block_size", "dp", "enable_dp_attention"),
            *("ep_size", "num_redundant_experts", "cpu_offload_gb", "speculative_algorithm"),
            *("enable_lora", "max_loras", "max_lora_rank", "lora_target_modules", "max_num_seqs"),
        }
    ),
    most_at_once=most_running,
    releases=Releases(oldest=(0, 5), newest=(0, 5, 23)),
    narrower_caches=("fp8",),
    keeps_float32=False,
    platforms=_platforms,
    refusals=_refusals,
)
