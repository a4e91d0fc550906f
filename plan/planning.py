"""A whole plan: the memory of one rank, what fits where, and what other K/V heads would change."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from headcount.model.spec import ModelSpec

from .decode import tokens_per_second, unbounded_reason
from .devices import Device, all_devices
from .memory import MemoryPlan, plan_rank
from .parallel import check_tp
from .placement import Placement, placements
from .request import PlanRequest, Workload, resolve_workload
from .weights import Weights, plan_weights
from .what_if import Variant, variant_rank, variants


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantPlan:
    """`memory` is None where tp does not suit the variant's K/V heads. `mha_ratio` is the cache of
    one K/V head per query head over the variant's, both undivided."""

    variant: Variant
    memory: MemoryPlan | None
    mha_ratio: float


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelPlan:
    """`placements` is empty where a device was asked for; `unbounded_reason` says why decoding has
    no bound by bandwidth."""

    model_id: str
    spec: ModelSpec
    request: PlanRequest
    config: Mapping[str, Any] | None
    weights: Weights
    memory: MemoryPlan
    placements: tuple[Placement, ...]
    variants: tuple[VariantPlan, ...]
    unbounded_reason: str | None

    @property
    def workload(self) -> Workload:
        return self.memory.workload

    def decode_rate(self, device: Device) -> float | None:
        """Upper bound of tokens per second of each sequence on `device`; None if there is none."""
        if self.unbounded_reason is not None:
            return None
        return tokens_per_second(
            self.memory.rank,
            self.weights,
            device,
            context=self.workload.context,
            batch_size=self.workload.batch_size,
        )


def plan_model(
    spec: ModelSpec,
    request: PlanRequest,
    *,
    model_id: str,
    weights_bytes: int | None = None,
    config: Mapping[str, Any] | None = None,
) -> ModelPlan:
    """Plans `request` for the model. Raises HeadcountError.

    `weights_bytes` are those of the headers, where they are at hand. `config` tells how a model
    without headers is quantised, and whether it has experts.
    """
    check_tp(spec, request.tp, model_id)
    workload = resolve_workload(request, spec)
    weights = plan_weights(
        spec, workload, weights_bytes=weights_bytes, config=config, model_id=model_id
    )
    memory = MemoryPlan(
        rank=plan_rank(spec, workload, weights, request.tp),
        workload=workload,
        model_maximum=spec.max_position_embeddings,
        device=request.device,
        utilisation=request.utilisation,
    )
    everywhere = all_devices() if request.device is None else ()
    return ModelPlan(
        model_id=model_id,
        spec=spec,
        request=request,
        config=config,
        weights=weights,
        memory=memory,
        placements=placements(spec, weights, memory, everywhere) if everywhere else (),
        variants=_variants(spec, weights, memory),
        unbounded_reason=unbounded_reason(spec, config),
    )


def _variants(spec: ModelSpec, weights: Weights, memory: MemoryPlan) -> tuple[VariantPlan, ...]:
    found = variants(spec)
    sizes = [_cache_bytes(variant.spec, memory.workload) for variant in found]
    return tuple(
        VariantPlan(
            variant=variant,
            memory=_variant_memory(variant, spec, weights, memory),
            mha_ratio=sizes[0] / size,  # the first row is MHA
        )
        for variant, size in zip(found, sizes, strict=True)
    )


def _cache_bytes(spec: ModelSpec, workload: Workload) -> int:
    return spec.cache_bytes(
        tokens=workload.context,
        bits=workload.kv_bits,
        encoder_tokens=workload.encoder_tokens,
        engine="serving",
    )


def _variant_memory(
    variant: Variant, spec: ModelSpec, weights: Weights, memory: MemoryPlan
) -> MemoryPlan | None:
    tp = memory.rank.tp
    if not variant.allows(tp):
        return None
    return replace(memory, rank=variant_rank(variant, spec, memory.workload, weights, tp))
