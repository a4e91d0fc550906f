"""vLLM's K/V memory: blocks of layer groups."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from ...planned_model import PlannedModel
from ...request import Workload
from ..layers import LayerCache, StagedCaches, readers_apart
from ..paged import paged_caches
from ..pool import CachePool
from ..version import Version
from .blocks import BlockRequest, BlockTable, block_table
from .defaults import in_flight_tokens, step_limits
from .hybrid import as_allocated
from .states import StateRule, state_rule


@dataclass(frozen=True, kw_only=True, slots=True)
class VllmPool(CachePool):
    """`table` is that of the model on one rank of each stage."""

    table: BlockTable
    layers: tuple[LayerCache, ...]
    version: Version
    in_flight: int
    encoder_tokens: int = 0
    context_ranks: int = 1
    states: StateRule = field(default_factory=StateRule)
    readers_apart: int = 0

    @property
    def block_size(self) -> int | None:
        return self.table.block_size

    @property
    def bytes_per_token(self) -> int:
        return sum(layer.token_bytes for layer in self.layers if layer.window is None)

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        blocks = self.table.blocks_of(self.request(context))
        return batch_size * blocks * self.table.block_bytes[stage]

    def num_blocks(self, available: Sequence[int]) -> int:
        return self.table.num_blocks(available)

    def concurrency(self, available: Sequence[int], context: int) -> float:
        return self.of_blocks(self.num_blocks(available), context)[1]

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return self.of_blocks(self.num_blocks(available), context)[0]

    def of_blocks(self, blocks: int, context: int) -> tuple[int, float]:
        request = self.request(context)
        tokens = self.table.logged_tokens(blocks, request, self.version)
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
        found = [self._of_prefixes()]
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
    found = with_draft(paged_caches(model, work), request.draft_layers, request.pp)
    caches = as_allocated(found.caches, version, disabled=request.disable_hybrid_kv_cache_manager)
    states = state_rule(
        model.spec,
        model.config,
        version,
        mode=request.mamba_cache_mode,
        caches_prefixes=request.caches_prefixes,
        device=request.device,
        speculated=request.speculated or 0,
    )
    step = step_limits(version, request.device, request)
    return VllmPool(
        table=_table(
            caches,
            version=version,
            block_size=request.block_size,
            stages=found.stages,
            stage_count=request.pp,
            chunk=states.chunk,
        ),
        layers=caches,
        version=version,
        in_flight=in_flight_tokens(version, step.max_num_batched_tokens, request.pp),
        encoder_tokens=work.encoder_tokens,
        context_ranks=request.context_ranks,
        states=states,
        readers_apart=readers_apart(model.spec, request.pp),
    )


def with_draft(found: StagedCaches, layers: int, pp: int) -> StagedCaches:
    """With the caches of so many drafting layers on the last stage, each as large as that of a
    layer of the model that keeps every token: MTP's are such layers, heads of EAGLE may differ."""
    kept = [n for n in found.caches if n.kind in ("full", "latent") and n.window is None]
    if not layers or not kept:
        return found
    return StagedCaches(
        caches=(*found.caches, *[kept[-1]] * layers), stages=(*found.stages, *[pp - 1] * layers)
    )


_table = lru_cache(maxsize=64)(block_table)  # a search asks for it on every device
