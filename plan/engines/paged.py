"""What engines with pages of K/V memory keep of a model: each layer's cache on a rank, with the
dtypes of keys, values and recurrent state."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from headcount.model.dtypes import ALIASES, BITS, resolve_dtype
from headcount.model.mixers import Recurrent
from headcount.model.numbers import size
from headcount.model.spec import ModelSpec

from ..planned_model import PlannedModel
from ..request import CacheType, PlanRequest, Workload
from .cache_names import AUTO, CacheNames
from .kv_formats import ENGINE_DTYPES, KvFormat, kv_format
from .layers import (
    Deal,
    LayerCache,
    StagedCaches,
    caches_of_layer,
    stage_of_layers,
    staged_caches,
    stages_of,
)
from .version import Version

_KEYS = ("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
# Their recurrent state is float32 whatever the config says (vllm: MambaStateDtypeCalculator).
_ALWAYS_WIDE = ("Kimi delta attention", "lightning attention")


def paged_cache_type(
    names: CacheNames,
) -> Callable[[PlannedModel, PlanRequest, Version, str], CacheType]:
    """What reads --kv-dtype where the engine's names of types are `names`."""

    def cache_type(
        model: PlannedModel, request: PlanRequest, version: Version, compute_dtype: str
    ) -> CacheType:
        name = names.own(request.kv_dtype, version, compute_dtype)
        return named_cache_type(name, compute_dtype)

    return cache_type


def named_cache_type(name: str | None, compute_dtype: str) -> CacheType:
    """`name` is a dtype, or what engines call a layout of theirs; None and `auto` are the dtype
    that is computed in. Raises HeadcountError."""
    bits = kv_format(name, compute_bits=BITS[compute_dtype]).bits
    if name is None or name == AUTO:
        return CacheType(compute_dtype, bits)
    return CacheType(name if name in ENGINE_DTYPES else resolve_dtype(name), bits)


def paged_caches(
    model: PlannedModel,
    work: Workload,
    deal: Deal = stage_of_layers,
    state_dtype: str | None = None,
) -> StagedCaches:
    """The caches of one rank of each pipeline stage, among which `deal` shares out the layers.
    `state_dtype` is the engine's own for recurrent state where the config names none."""
    stages = stages_of(work.request, len(model.spec.layers), deal)
    kv = _format(model, work, state_dtype)
    return _staged(model, work.request.attention_tp, kv, stages)


def _format(model: PlannedModel, work: Workload, state_dtype: str | None = None) -> KvFormat:
    kv = kv_format(work.kv_dtype, compute_bits=work.compute_bits)
    if work.cache_type.plain_latents:
        kv = replace(kv, sparse_latent_bytes=None)
    kv = with_state_dtypes(kv, model.spec, model.config, work.compute_bits, state_dtype)
    return replace(kv, speculated=work.request.drafted)


def with_draft(found: StagedCaches, model: PlannedModel, work: Workload) -> StagedCaches:
    """With the caches of what drafts, which is on the last stage."""
    last, own = work.request.pp - 1, tuple(_of_draft(model, work))
    return StagedCaches(caches=(*found.caches, *own), stages=(*found.stages, *[last] * len(own)))


def _of_draft(model: PlannedModel, work: Workload) -> Iterator[LayerCache]:
    """Layers of MTP keep as much as one of the model that keeps every token, and so is taken of a
    head of EAGLE that is not known."""
    speculation = work.request.speculation
    if speculation is None:
        return
    if (draft := speculation.draft) is not None:
        stages = (0,) * len(draft.spec.layers)
        yield from _staged(draft, work.request.attention_tp, _format(draft, work), stages).caches
        return
    if speculation.takes_hidden_states:
        from .added.drafts import prediction_layers  # only what drafts wants it

        count = prediction_layers(model) if speculation.method == "mtp" else 1
        yield from _last_full(model, work) * max(1, count)


def _last_full(model: PlannedModel, work: Workload) -> list[LayerCache]:
    """What the last layer that keeps every token keeps of it, the keys of an indexer included."""
    tp, kv, chunk = work.request.attention_tp, _format(model, work), _chunk(model.config)
    for layer in reversed(model.spec.layers):
        found = caches_of_layer(layer, model.spec, tp=tp, kv=kv, chunk=chunk)
        if kept := [n for n in found if n.kind in ("full", "latent") and n.window is None]:
            return kept
    return []


@lru_cache(maxsize=64)
def _staged(model: PlannedModel, tp: int, kv: KvFormat, stages: tuple[int, ...]) -> StagedCaches:
    return staged_caches(model.spec, tp=tp, kv=kv, stages=stages, chunk=_chunk(model.config))


def _chunk(config: Mapping[str, Any]) -> int | None:
    for holder in (config, config.get("text_config") or {}):
        chunk = size(holder.get("attention_chunk_size")) if isinstance(holder, dict) else None
        if chunk is not None:
            return chunk
    return None


def with_state_dtypes(
    kv: KvFormat,
    spec: ModelSpec,
    config: Mapping[str, Any],
    compute_bits: int,
    default: str | None = None,
) -> KvFormat:
    """`kv` with the bits of recurrent state: those that the config names, else `default`, else the
    model's own."""
    texts = (*_named(config), default)
    named = next((bits for text in texts if (bits := _bits(text))), None)
    wide = any(_is_wide(mixer) for layer in spec.layers for mixer in layer.mixers)
    bits = named or (32 if wide else compute_bits)
    return replace(kv, state_bits=bits, conv_bits=compute_bits)


def _is_wide(mixer: object) -> bool:
    return isinstance(mixer, Recurrent) and mixer.form in _ALWAYS_WIDE


def _named(config: Mapping[str, Any]) -> Iterator[object]:
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping):
            yield from (holder[key] for key in _KEYS if key in holder)


def _bits(name: object) -> int | None:
    if not isinstance(name, str):
        return None
    plain = name.removeprefix("torch.")
    return BITS.get(ALIASES.get(plain, plain))
