"""vLLM's K/V memory: blocks of layer groups."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from headcount.model.mixers import fills

from ...planned_model import PlannedModel
from ...request import Workload
from ..layers import LayerCache, StagedCaches, compresses, readers_apart, stages_of
from ..paged import paged_caches, with_draft
from ..pool import CachePool
from ..version import Version
from .added.drafting import overlaps_steps
from .blocks import BlockRequest, BlockTable, block_table
from .cache_kernels import DS_MLA
from .defaults import StepLimits, in_flight_tokens, step_limits
from .hybrid import as_allocated
from .kernel_blocks import kernel_block
from .model_rules import as_served, default_state, ignores_cache_dtype, packs_convolutions
from .runner import uses_v2
from .states import StateRule, state_rule

_NULL_BLOCK_SINCE = (0, 29)


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmPool(CachePool):
    """`table` is that of the model on one rank of each stage; `layers[i]` is on `stages[i]`."""

    table: BlockTable
    layers: tuple[LayerCache, ...]
    stages: tuple[int, ...]
    version: Version
    in_flight: int
    encoder_tokens: int = 0
    context_ranks: int = 1
    states: StateRule = field(default_factory=StateRule)
    readers_apart: int = 0
    remarks: tuple[str, ...] = ()

    @property
    def block_size(self) -> int | None:
        return self.table.block_size

    def bytes_per_token(self, within: int | None) -> int:
        """On the stage where it is most."""
        found = [0] * len(self.table.block_bytes)
        for layer, stage in zip(self.layers, self.stages, strict=True):
            found[stage] += 0 if fills(layer.window, within) else layer.token_bytes
        return max(found)

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        blocks = self.table.blocks_of(self.request(context))
        own = batch_size * blocks * self.table.block_bytes[stage]
        return max(own, blocks * sum(self.table.block_bytes)) if self._checks_all_stages else own

    def formula(self, context: int, batch_size: int, stage: int = 0) -> str:
        """Where layers have windows, with what these keep."""
        request = self.request(context)
        windows = dict.fromkeys(filter(None, (g.formula(request) for g in self.table.groups)))
        if not windows or self._checks_all_stages:
            return CachePool.formula(self, context, batch_size, stage)
        batch = f" x batch {batch_size:,}" if batch_size > 1 else ""
        return (
            f"{self.table.blocks_of(request):,} blocks x {self.table.block_bytes[stage]:,} B of a"
            f" request of {context:,} tokens{batch}; {'; '.join(windows)}"
        )

    def reserved(self, stage: int = 0) -> int:
        """The null block, for which a start wants room since 0.29 (get_kv_cache_configs in
        vllm/v1/core/kv_cache_utils.py); what it logs counts it."""
        return self.table.block_bytes[stage] if self.version.at_least(*_NULL_BLOCK_SINCE) else 0

    @property
    def _checks_all_stages(self) -> bool:
        """Whether one request's cache in all stages must fit on each, as a check of the whole
        model's groups against the least memory of a worker asked (get_kv_cache_configs in
        vllm/v1/core/kv_cache_utils.py of 0.14 to 0.16)."""
        since = self.version.at_least(0, 14) and not self.version.at_least(0, 17)
        return since and len(self.table.block_bytes) > 1

    def num_blocks(self, available: Sequence[int]) -> int:
        return self.table.num_blocks(available)

    def concurrency(self, available: Sequence[int], context: int) -> float:
        return self.of_blocks(self.num_blocks(available), context)[1]

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return self.of_blocks(self.num_blocks(available), context)[0]

    def of_blocks(self, blocks: int, context: int) -> tuple[int, float]:
        """Concurrency was before 0.9.1 one of tokens, whatever the blocks that a request takes."""
        request = self.request(context)
        tokens = self.table.logged_tokens(blocks, request, self.version)
        if not self.version.at_least(0, 9, 1):
            return tokens, tokens / context
        return tokens, self.table.concurrency(blocks, request)

    def request(self, context: int) -> BlockRequest:
        """What a request of `context` tokens asks of the groups."""
        return BlockRequest(
            tokens=context,
            in_flight=self.in_flight,
            encoder_tokens=self.encoder_tokens,
            context_ranks=self.context_ranks,
            state_blocks=self.states.blocks,
            speculated=self.states.speculated,
        )

    def notes(self) -> Sequence[str]:
        groups = self.table.groups
        found = [*self.remarks, self._of_prefixes()]
        if self._checks_all_stages:
            found.append(
                "vLLM 0.14 to 0.16 hold one request's cache in all stages against the memory of the"
                " smallest (vllm-project/vllm#34076): newer versions take longer contexts here."
            )
        if len(groups) > 1:
            found.append(
                f"The layers are {len(groups)} groups that share one pool of blocks; a request"
                " takes blocks in each."
            )
        if self.readers_apart:
            found.append(
                f"{self.readers_apart} layers read the cache of a layer on another stage, which"
                " vLLM refuses when it starts (validate_kv_sharing_target): share the layers with"
                " --tp in place of --pp."
            )
        return found

    def _of_prefixes(self) -> str:
        if not any(group.cache.kind == "state" for group in self.table.groups):
            return (
                "Cached prefixes live in the same blocks: prefix caching changes neither tokens nor"
                " concurrency."
            )
        blocks = self.states.blocks
        each = "as many blocks as its tokens fill" if blocks is None else f"{blocks} blocks"
        return (
            f"A request takes {'1 block' if blocks == 1 else each} of recurrent state"
            f" (--mamba-cache-mode {self.states.mode}): caching prefixes takes more."
        )


def vllm_pool(model: PlannedModel, work: Workload) -> VllmPool:
    """The pool of one rank, from what each layer keeps. Raises HeadcountError for a dtype that
    vLLM does not have."""
    request, version = work.request, work.version
    served = as_served(model)
    state_dtype = default_state(model.spec.model_type, version)
    found = with_draft(_kept(served, work, state_dtype), served, work)
    caches = as_allocated(found.caches, version, disabled=request.disable_hybrid_kv_cache_manager)
    states = state_rule(
        model.spec,
        model.config,
        version,
        mode=request.mamba_cache_mode,
        caches_prefixes=request.caches_prefixes,
        device=request.device,
        speculated=request.drafted,
    )
    step = step_limits(version, request.device, request)
    stages, of_layers = found.stages, stages_of(request, len(model.spec.layers))
    packed = _packed(model, work, of_layers)
    if packed is not None:
        from .compressed import compressed_caches

        caches, stages = compressed_caches(model.spec, of_layers)
    table = packed or _table(
        caches,
        version=version,
        block_size=request.block_size,
        kernel_block=kernel_block(served.spec, version, request.device, work.kv_bits),
        stages=stages,
        stage_count=request.pp,
        chunk=states.chunk,
    )
    return VllmPool(
        table=table,
        layers=caches,
        stages=stages,
        version=version,
        in_flight=in_flight_tokens(
            version,
            step.max_num_batched_tokens,
            request.pp,
            runs_ahead=_runs_ahead(model, work),
        ),
        encoder_tokens=_encoder_tokens(work, step),
        context_ranks=request.context_ranks,
        states=states,
        readers_apart=readers_apart(model.spec, of_layers),
        remarks=tuple(_remarks(model, work, is_packed=packed is not None)),
    )


def _kept(model: PlannedModel, work: Workload, state_dtype: str | None) -> StagedCaches:
    found = paged_caches(model, work, state_dtype=state_dtype)
    if not packs_convolutions(model.spec.model_type):
        return found
    from .short_convolutions import convolution_windows  # one type alone wants it

    return convolution_windows(model, found, work.request.attention_tp)


def _packed(model: PlannedModel, work: Workload, stages: tuple[int, ...]) -> BlockTable | None:
    """The blocks of layers that compress tokens, as their kernel keeps them in 8 bit; None where
    none does, or as the model computes."""
    if not compresses(model.spec) or work.kv_dtype != DS_MLA:
        return None
    from .compressed import compressed_table  # few models want it

    return compressed_table(model.spec, work.version, stages)


def _runs_ahead(model: PlannedModel, work: Workload) -> bool:
    """Whether steps are scheduled before the last is done: the V1 runner does so on one stage alone
    (VllmConfig.max_concurrent_batches of vllm/config/vllm.py)."""
    if work.request.async_scheduling is False:
        return False
    return overlaps_steps(work) and (work.request.pp == 1 or uses_v2(model, work))


def _encoder_tokens(work: Workload, step: StepLimits) -> int:
    """Tokens of an encoder that a request's blocks are for: its own length until 0.12, then as many
    as a step has (CrossAttentionSpec.max_memory_usage_bytes of vllm/v1/kv_cache_interface.py)."""
    is_step = work.version.at_least(0, 13)
    return step.max_num_batched_tokens if is_step else work.encoder_tokens


def _remarks(model: PlannedModel, work: Workload, *, is_packed: bool) -> Iterator[str]:
    """What the figures leave out."""
    if compresses(model.spec) and not is_packed:
        yield (
            "Compressed tokens are counted without vLLM's layout of them, which is known for its"
            " default --kv-cache-dtype alone: it logs several times fewer tokens and requests."
        )
    if compresses(model.spec) and work.request.speculation is not None:
        yield "The cache of the layers that draft is left out beside compressed tokens."
    if work.request.kv_dtype not in (None, "auto") and ignores_cache_dtype(model.spec.model_type):
        yield "vLLM's class of this model ignores --kv-cache-dtype: its cache stays as it computes."
    if work.request.sampler is not None and uses_v2(model, work):
        yield (
            "--sampler changes nothing here: the V2 model runner profiles sampling without top-k"
            " and top-p (--model-runner v1 profiles them)."
        )


_table = lru_cache(maxsize=64)(block_table)  # a search asks for it on every device
