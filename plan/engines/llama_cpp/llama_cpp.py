"""llama.cpp as an engine: its budget, its caches and its command."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import ceil

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, CompressedAttention, LatentAttention, Mixer
from headcount.model.spec import ModelSpec
from headcount.model.units import format_bytes

from ...budget import Budget, Term
from ...devices import Device
from ...gguf_mixes import mix_name
from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest, Workload
from ...stored import full_name, stored_as
from ...weights import rank_weights
from ..budget_terms import runtime, share_of
from ..engine import Engine
from ..launch import Launch, Served, beyond_maximum, gguf_file, is_gguf, option, own_format
from ..layers import stage_of_layers
from ..loaded_weights import loaded_weights
from ..pool import CachePool
from ..staged_pool import pool_of_stages
from ..version import Releases, Version
from .cache_types import BLOCKS, ELEMENTS, WIDE, CacheTypes, cache_type
from .compute import Block, Held, Shape, condensed, device_bytes, host_bytes
from .layer_cells import layer_cells
from .placement import Placement, Share, layers_of, placed_weights, placement
from .pool import LlamaCppPool
from .slots import UBATCH, Slots
from .widths import blocks_of


def _cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    """Raises HeadcountError for types that the server would refuse (llama_init_from_model)."""
    kinds = cache_types(request)
    if kinds.keys != kinds.values and any(_is_latent(mixer) for mixer in mixers(model.spec)):
        raise HeadcountError(
            f"--cache-type-k {kinds.keys} and --cache-type-v {kinds.values}: llama.cpp keeps no"
            " values beside the latents of this model, and takes one type for both"
        )
    if kinds.values not in WIDE and not uses_flash_attention(request):
        raise HeadcountError(
            f"--cache-type-v {kinds.values}: llama.cpp quantises values with flash attention only:"
            " leave out --flash-attn off"
        )
    _check_heads(model.spec, kinds, request)
    return CacheType(kinds.name, BLOCKS[kinds.keys] * 8 // 32)


def _check_heads(spec: ModelSpec, kinds: CacheTypes, request: PlanRequest) -> None:
    """Raises HeadcountError for heads that blocks of a quantised type do not divide."""
    if not uses_flash_attention(request):
        return
    for mixer in mixers(spec):
        if not isinstance(mixer, Attention):
            continue
        sides = (("k", kinds.keys, mixer.head_dim), ("v", kinds.values, mixer.v_head_dim))
        for letter, kind, size in sides:
            if kind not in WIDE and size % ELEMENTS:
                raise HeadcountError(
                    f"--cache-type-{letter} {kind}: heads of {size} elements are no whole blocks of"
                    f" {ELEMENTS}, which llama.cpp wants: f16 or bf16"
                )


def _is_latent(mixer: Mixer) -> bool:
    if isinstance(mixer, LatentAttention):
        return not mixer.expanded
    return isinstance(mixer, CompressedAttention)


def mixers(spec: ModelSpec) -> Iterator[Mixer]:
    return (mixer for layer in spec.layers for mixer in layer.mixers)


def cache_types(request: PlanRequest) -> CacheTypes:
    """Raises HeadcountError for one that llama.cpp has not."""
    return CacheTypes(
        cache_type(request.cache_type_k or request.kv_dtype),
        cache_type(request.cache_type_v or request.kv_dtype),
    )


def slots_of(request: PlanRequest) -> Slots:
    return Slots(
        parallel=request.parallel,
        unified=request.kv_unified,
        ubatch_size=request.ubatch_size or UBATCH,
        swa_full=request.swa_full,
    )


def uses_flash_attention(request: PlanRequest) -> bool:
    """`auto` is on wherever the device can."""
    return request.flash_attn != "off"


def _pool(model: PlannedModel, work: Workload) -> CachePool:
    """What lies on the device."""
    where = placement(work.request, layers_of(model.spec))
    return pool_of_stages(
        model.spec, work.request.pp, lambda spec: _pool_of(spec, work, where, on_device=True)
    )


def _pool_of(spec: ModelSpec, work: Workload, where: Placement, *, on_device: bool) -> LlamaCppPool:
    request = work.request
    cells = layer_cells(spec, tp=request.tp, padded_values=not uses_flash_attention(request))
    return LlamaCppPool(
        layers=tuple(c for c in cells if where.holds_cache(c.layer) == on_device),
        types=cache_types(request),
        slots=slots_of(request),
    )


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


def _budget(model: PlannedModel, device: Device | None, work: Workload) -> tuple[Budget, ...]:
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
    rest = _pool_of(model.spec, work, where, on_device=False)
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


def _launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    found = _served(model, work.request.dtype)
    if found.name is None:
        return Launch(command=None, notes=found.notes)
    notes = list(found.notes)
    if found.notes:
        notes.append("-hf in place of -m takes a repository of the Hub that has GGUF files.")
    if beyond := beyond_maximum(model, work):
        notes.append(f"llama-server caps a request at the model's {beyond:,} tokens.")
    words = [f"llama-server -m {found.name}", *_options(work)]
    return Launch(command=" ".join(words), notes=tuple(notes))


def _served(model: PlannedModel, dtype: str | None) -> Served:
    """A GGUF file; of a model that is none, a placeholder for one."""
    if is_gguf(model) and dtype is None:
        return gguf_file(model, None)
    stored = _format(model, dtype)
    mix = mix_name(_AS_MIXES.get(stored, stored))
    if mix is not None:
        return gguf_file(model, mix)
    note = f"llama.cpp has no weights of {stored}: its own are q4_k_m, q6_k, q8_0 and the like."
    return Served(name=None, notes=(note,))


def _format(model: PlannedModel, dtype: str | None) -> str:
    """The name of what the weights are planned as."""
    if dtype is not None:
        return full_name(dtype)
    own = own_format(model)
    if own is None:
        return model.spec.dtype or "bfloat16"
    return stored_as(own) or str(own.get("quant_method", "the config's own format"))


_AS_MIXES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "mxfp4": "mxfp4_moe"}


def _options(work: Workload) -> Iterator[str]:
    request, kinds = work.request, cache_types(work.request)
    layout = slots_of(request).of(work.context, work.batch_size)
    layers = request.gpu_layers
    yield f"-ngl {999 if layers is None else layers}"
    yield from ("--cpu-moe",) if request.cpu_moe else option("--n-cpu-moe", request.n_cpu_moe, 0)
    yield from ("--no-kv-offload",) if request.no_kv_offload else ()
    yield f"-c {layout.asked}"
    if not layout.by_itself:
        yield f"--parallel {layout.count}"
        yield from ("--kv-unified",) if layout.unified and request.kv_unified else ()
    yield from option("--ubatch-size", request.ubatch_size, UBATCH)
    if kinds != CacheTypes():
        yield f"--cache-type-k {kinds.keys} --cache-type-v {kinds.values}"
    if request.flash_attn not in (None, "auto"):
        yield f"--flash-attn {request.flash_attn}"
    yield from ("--swa-full",) if request.swa_full else ()
    if request.tp > 1:
        yield f"--split-mode tensor --tensor-split {','.join(['1'] * request.tp)}"
    elif request.pp > 1:
        yield f"--split-mode layer --tensor-split {','.join(['1'] * request.pp)}"


ENGINE = Engine(
    name="llama.cpp",
    budget=_budget,
    pool=_pool,
    launch=_launch,
    cache_type=_cache_type,
    listed_as="llama.cpp",
    weights=loaded_weights,
    host=host_terms,
    options=frozenset(
        {
            *("version", "pp", "parallel", "kv_unified", "ubatch_size", "cache_type_k"),
            *("cache_type_v", "flash_attn", "swa_full", "gpu_layers", "n_cpu_moe", "cpu_moe"),
            "no_kv_offload",
        }
    ),
    releases=Releases(oldest=(9093,), newest=(11434,)),
    narrower_caches=("q8_0", "q4_0"),
    platforms=lambda version: dict.fromkeys(("cuda", "rocm", "xpu", "metal")),  # docs/build.md
    narrower_weights=("Q8_0", "Q4_K_M"),
)
