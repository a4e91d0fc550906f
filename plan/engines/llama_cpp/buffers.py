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
from .aborts import file_architecture
from .building import Held
from .compute import Computed, Shape, computed
from .placed_pool import pool_of
from .placement import (
    Placement,
    Share,
    largest_on_host,
    layers_of,
    placed_weights,
    placement,
)
from .schedule import DEVICE, HOST
from .settings import mode_of, slots_of
from .templates import is_recorded, stand_in
from .widths import sizes_of_graph


@dataclass(frozen=True, kw_only=True, eq=False)
class Buffers:
    """What grows with the cells: the compute buffer of a device with the layers of one stage."""

    model: PlannedModel
    work: Workload
    where: Placement
    stage: tuple[int, ...]

    def total_bytes(self, context: int, batch_size: int) -> int:
        return self._computed(context, batch_size, DEVICE).nbytes

    def terms(self, context: int, batch_size: int) -> tuple[Term, ...]:
        return (self._term(context, batch_size, DEVICE, self._copied),)

    def host_term(self, context: int, batch_size: int) -> Term:
        return self._term(context, batch_size, HOST)

    def _computed(self, context: int, batch_size: int, place: int) -> Computed:
        return computed(self._shape(context, batch_size), self._held, place)

    @cached_property
    def _copied(self) -> int:
        """Where weights stay with the host, GPUs compute large micro-batches all the same, with
        copies of one matrix after the other (op_offload of ggml/src/ggml-backend.cpp)."""
        return largest_on_host(self.model, self.work, self.where)

    @cached_property
    def _held(self) -> Held:
        where, own = self.where, set(self.stage)
        return Held(
            tuple(i in own and where.holds(i) for i in range(where.layers)),
            tuple(i in own and where.holds_experts(i) for i in range(where.layers)),
            where.output and self.stage[-1] == where.layers - 1,
            where.output and where.on_device == where.layers,
        )

    @cached_property
    def _architecture(self) -> tuple[str, bool]:
        """That of the file, or of the files of such models; one that is like it where llama.cpp
        was not asked of it, and whether it is its own."""
        name = file_architecture(self.model)
        return (name, True) if is_recorded(name) else (stand_in(), False)

    def _shape(self, context: int, batch_size: int) -> Shape:
        request = self.work.request
        layout = slots_of(request).of(context, batch_size)
        limited = self.work.version.at_least(*_OUTPUTS_OF_SLOTS)
        return Shape(
            architecture=self._architecture[0],
            mode=mode_of(request),
            sizes=sizes_of_graph(self.model, request.tp),
            tokens=layout.ubatch,
            outputs=min(layout.ubatch, layout.count) if limited else layout.ubatch,
            layout=layout,
            may_leave=request.flash_attn in (None, "auto"),
        )

    def _term(self, context: int, batch_size: int, place: int, copied: int = 0) -> Term:
        shape = self._shape(context, batch_size)
        found = self._computed(context, batch_size, place)
        is_own = self._architecture[1] and self.work.request.tp == 1
        error = _error(shape) if is_own and found.is_followed else _ERROR_OF_OTHERS
        return Term(
            key="activations",
            title="Compute buffer",
            bytes=found.nbytes,
            formula=f"the graph of {shape.tokens:,} tokens over {shape.layout.cells:,} cells,"
            f" logits of {shape.outputs:,}",
            source="llama.cpp's graph and its allocator",
            error_bytes=int(found.nbytes * error) + copied,
        )


def _error(shape: Shape) -> float:
    """States are fetched ahead of their layers, and indexers choose tokens: what differs there from
    layer to layer was not met in every order."""
    holds = (kind.holds for kind in shape.sizes.kinds)
    has_indexer = any("K" in own for own in shape.sizes.layers)
    is_plain = not has_indexer and all("recurrent" not in held for held in holds)
    return _ERROR if is_plain else _ERROR_OF_STATES


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
                f"{_asked_for(work)}: which layer has which of {model.model_id}'s weights does not"
                f" follow from the config of a {model.spec.model_type}: name its GGUF file, whose"
                " tensors tell"
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


def _asked_for(work: Workload) -> str:
    """The option by which a part stays with the host."""
    request = work.request
    if request.gpu_layers is not None:
        return f"--gpu-layers {request.gpu_layers}"
    return "--cpu-moe" if request.cpu_moe else f"--n-cpu-moe {request.n_cpu_moe}"


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
_ERROR, _ERROR_OF_STATES, _ERROR_OF_OTHERS = 0.02, 0.1, 1.0
# llama-server computes the logits of a token for each slot, and not of a micro-batch, since b9464
# (server_output_limits of tools/server/server-context.cpp; not in b9453).
_OUTPUTS_OF_SLOTS = (9464,)
