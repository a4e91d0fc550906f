"""What a request says in llama.cpp's words: types of its caches, slots, flash attention."""

from collections.abc import Iterator

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Attention, CompressedAttention, LatentAttention, Mixer
from headcount.model.spec import ModelSpec

from ...planned_model import PlannedModel
from ...request import CacheType, PlanRequest, Workload
from ..version import Version
from .cache_types import BLOCKS, ELEMENTS, WIDE, CacheTypes, cache_type
from .slots import UBATCH, Layout, Slots
from .templates import Mode


def checked_cache_type(
    model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
) -> CacheType:
    """Raises HeadcountError for types that the server would refuse (llama_init_from_model)."""
    kinds = cache_types(request)
    if kinds.keys != kinds.values and any(_is_latent(mixer) for mixer in _mixers(model.spec)):
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
    for mixer in _mixers(spec):
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


def _mixers(spec: ModelSpec) -> Iterator[Mixer]:
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


def layout_of(work: Workload) -> Layout:
    """The cells of the start that is asked for: of as many slots as it says, at most."""
    most = min(work.batch_size, work.request.parallel or work.batch_size)
    return slots_of(work.request).of(work.context, most)


def mode_of(request: PlanRequest) -> Mode:
    """What llama.cpp's graph of attention is like. Quantised keys and values are turned first."""
    if not uses_flash_attention(request):
        return "scores"
    kinds = cache_types(request)
    return "flash" if kinds.keys in WIDE and kinds.values in WIDE else "rotated"


def uses_flash_attention(request: PlanRequest) -> bool:
    """`auto` is on wherever the device can."""
    return request.flash_attn != "off"
