"""What llama.cpp takes beside its caches: weights and compute buffers, of device and host."""

from dataclasses import dataclass
from functools import cached_property
from math import ceil

from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes

from ...budget import Budget, Term
from ...devices import Device
from ...planned_model import PlannedModel
from ...request import Workload
from ...weights import rank_weights
from ..budget_terms import runtime, share_of
from ..layers import stage_of_layers
from .block import Block
from .compute import Held, Shape, condensed, device_bytes, host_bytes
from .placed_pool import pool_of
from .placement import Placement, Share, layers_of, placed_weights, placement
from .settings import slots_of, uses_flash_attention
from .widths import blocks_of


@dataclass(frozen=True, kw_only=True, eq=False)
class Buffers:
    """What grows with the cells: the compute buffer of a device with the layers of one stage."""

    model: PlannedModel
    work: Workload
    where: Placement
    stage: tuple[int, ...]

    def total_bytes(self, context: int, batch_size: int) -> int:
        return device_bytes(*self._shape(context, batch_size))

    def terms(self, context: int, batch_size: int) -> tuple[Term, ...]:
        shape, _ = self._shape(context, batch_size)
        size = self.total_bytes(context, batch_size)
        return (_term(size, shape),)

    def host_term(self, context: int, batch_size: int) -> Term:
        shape, held = self._shape(context, batch_size)
        return _term(host_bytes(shape, held), shape)

    @cached_property
    def _blocks(self) -> tuple[tuple[Block, ...], Held]:
        """Of the stage's layers as many as tell, and what the device holds of them."""
        blocks, where = blocks_of(self.model, self.work.request.tp), self.where
        held = Held(
            tuple(map(where.holds, self.stage)),
            tuple(map(where.holds_experts, self.stage)),
            where.output and self.stage[-1] == where.layers - 1,
        )
        return condensed(tuple(blocks[i] for i in self.stage), held)

    def _shape(self, context: int, batch_size: int) -> tuple[Shape, Held]:
        request = self.work.request
        layout = slots_of(request).of(context, batch_size)
        limited = self.work.version.at_least(*_OUTPUTS_OF_SLOTS)
        kept, held = self._blocks
        return (
            Shape(
                hidden=self.model.spec.hidden_size,
                vocabulary=-(-(self.model.spec.vocab_size or 0) // request.tp),
                blocks=kept,
                tokens=layout.ubatch,
                outputs=min(layout.ubatch, layout.count) if limited else layout.ubatch,
                layout=layout,
                flash=uses_flash_attention(request),
            ),
            held,
        )


def _term(size: int, shape: Shape) -> Term:
    followed = all(block.is_followed for block in shape.blocks)
    return Term(
        key="activations",
        title="Compute buffer",
        bytes=size,
        formula=f"the graph of {shape.tokens:,} tokens over {shape.layout.cells:,} cells, logits of"
        f" {shape.outputs:,}",
        source="llama.cpp's graph and its allocator",
        error_bytes=int(size * (_ERROR if followed else _ERROR_OF_OTHERS)),
    )


def budgets(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
    """Of the device; the host's memory is `host_terms`."""
    assert device is not None
    request, count = work.request, layers_of(model.spec)
    where, at = placement(request, count), stage_of_layers(count, request.pp)
    allowed = share_of(device, request.utilisation or 0.95, "of the visible memory")
    outside = runtime(0.5, "context and workspaces")
    share = placed_weights(model, work, where)
    return tuple(
        Budget(
            allowed=allowed,
            fixed=(_weights(model, work, where, share, at, stage), outside),
            growing=Buffers(
                model=model,
                work=work,
                where=where,
                stage=tuple(i for i, own in enumerate(at) if own == stage),
            ),
        )
        for stage in range(request.pp)
    )


def _weights(
    model: PlannedModel,
    work: Workload,
    where: Placement,
    share: Share | None,
    at: tuple[int, ...],
    stage: int,
) -> Term:
    """Of one of tp devices of a stage, of which the last has the output."""
    weights, tp = work.weights, work.request.tp
    assert weights is not None
    whole, formula = rank_weights(model, weights, tp)
    if share is None:
        if not where.is_whole:
            raise HeadcountError(
                f"which of {model.model_id}'s weights lie in which layer is not known: --gpu-layers"
                " and --n-cpu-moe want a GGUF file, or a config that is described"
            )
        own = -(-whole // work.request.pp)
    else:
        mine = sum(size for size, own in zip(share.layers, at, strict=True) if own == stage)
        mine += share.outside if stage == work.request.pp - 1 else 0
        mine += (
            (weights.total_bytes - share.total) * where.on_device // where.layers // work.request.pp
        )
        copies = whole - -(-weights.total_bytes // tp)  # of projections that several ranks hold
        own = -(-mine // tp) + copies
        formula += f": {format_bytes(share.host)} lie in the host's memory"
    exact = weights.source == "headers"
    return Term(
        key="weights",
        title="Weights",
        bytes=own,
        formula=formula,
        source=_SOURCES[weights.source],
        error_bytes=ceil(own * (0.003 if exact else 0.015)),
    )


def host_terms(model: PlannedModel, work: Workload) -> tuple[Term, ...]:
    """What lies in the host's memory: weights, caches, the graph's inputs, and logits to sample
    from. A size of 0 is left out."""
    where, context, batch = (
        placement(work.request, layers_of(model.spec)),
        work.context,
        work.batch_size,
    )
    share = placed_weights(model, work, where) if work.weights else None
    rest = pool_of(model.spec, work, where, on_device=False)
    every = tuple(range(where.layers))
    graph = Buffers(model=model, work=work, where=where, stage=every)
    slots = slots_of(work.request).of(context, batch).count
    logits = slots * (model.spec.vocab_size or 0) * 4
    words = "the input embedding, and what is not offloaded"
    terms = (
        Term("weights", "Weights", share.host if share else 0, words),
        Term("kv_cache", "KV cache", rest.needed(context, batch), rest.formula(context, batch)),
        graph.host_term(context, batch),
        Term("outputs", "Outputs", logits, f"float32 logits of a token for each of {slots} slots"),
    )
    return tuple(term for term in terms if term.bytes)


_SOURCES = {
    "headers": "the files' headers",
    "parameters": "the config's count of parameters",
    "quantised": "the config's count of parameters and quantization_config",
}
# Of compute buffers, by the record of tests/plan/engines/llama_cpp.jsonl
_ERROR, _ERROR_OF_OTHERS = 0.15, 1.0
# llama-server computes the logits of a token for each slot, and not of a micro-batch, since b9464
# (server_output_limits of tools/server/server-context.cpp; not in b9453).
_OUTPUTS_OF_SLOTS = (9464,)
