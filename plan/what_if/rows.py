"""The same plan with other K/V heads, or with latents: what a conversion buys."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from headcount.model.pruned_heads import PrunedShare
from headcount.model.spec import ModelSpec

from ..plan import Plan, plan_workload
from .latents import latent_variants
from .variants import Variant, pruned_variants, variants


class VariantPlan(NamedTuple):
    """`plan` is None where tp does not suit the variant's K/V heads. `mha_ratio` is the cache of
    one K/V head per query head over the variant's, both undivided; `copies` is how many ranks store
    the same K/V head, or latent."""

    variant: Variant
    plan: Plan | None
    mha_ratio: float
    copies: int

    @property
    def waste_bytes(self) -> int:
        """Bytes of all ranks' cache memory that hold copies. Wants a plan with a device."""
        if self.plan is None:
            return 0
        whole = max(0, self.plan.available_bytes) * self.plan.request.tp
        return whole - whole // self.copies


def variant_plans(plan: Plan, pruned: PrunedShare | None = None) -> tuple[VariantPlan, ...]:
    """`plan` with each number of K/V heads, the most first; of an engine that reads them, also with
    the latents that the model can keep; and without `pruned` query heads. Raises HeadcountError
    for a number of these that cannot go."""
    found = variants(plan.spec)
    whole = _undivided(found[0].spec, plan) if found else 0  # the first row is MHA
    rows = [_variant_plan(plan, variant, whole) for variant in found]
    if found:
        made = latent_variants(plan.model, plan.engine)
        rows += [_variant_plan(plan, variant, whole) for variant in made]
    if pruned is not None:
        without = pruned_variants(plan.spec, pruned, plan.model.model_id or plan.spec.model_type)
        rows += [_variant_plan(plan, variant, whole) for variant in without]
    return tuple(rows)


def _variant_plan(plan: Plan, variant: Variant, whole: int) -> VariantPlan:
    tp, heads = plan.request.attention_tp, variant.num_key_value_heads
    return VariantPlan(
        variant=variant,
        plan=_planned(variant, plan) if variant.allows(tp) else None,
        mha_ratio=whole / _undivided(variant.spec, plan),
        copies=max(1, tp // heads) if heads else tp if variant.cache_only else 1,
    )


def _undivided(spec: ModelSpec, plan: Plan) -> int:
    """Bytes of a sequence's cache on one rank."""
    work = plan.workload
    encoder = work.encoder_tokens
    return spec.cache_bytes(
        tokens=work.context, bits=work.kv_bits, encoder_tokens=encoder, engine="serving"
    )


def _planned(variant: Variant, plan: Plan) -> Plan:
    """Where only the cache changes, the memory that is left stays what it is."""
    if variant.is_current:
        return plan
    model, weights = replace(plan.model, spec=variant.spec), plan.weights
    if variant.cache_only:
        return replace(plan, model=model, pool=plan.engine.pool(model, plan.workload))
    changed = weights.changed(variant.parameters_change) if weights else None
    return plan_workload(model, plan.engine, replace(plan.workload, weights=changed))


def conversions(rows: Sequence[VariantPlan]) -> tuple[VariantPlan, ...]:
    """The model as it is and what keeps less, where it has K/V heads of one number."""
    present = next((n for n, row in enumerate(rows) if row.variant.is_current), None)
    if present is None or rows[present].variant.num_key_value_heads is None:
        return ()
    found = (row for row in rows[present:] if row.variant.query_heads is None)
    return tuple(row for row in found if row.plan is not None)
