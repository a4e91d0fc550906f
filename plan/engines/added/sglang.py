"""What a start of SGLang adds to the model: data parallel attention, experts over ranks, drafts.

From sglang/srt/layers/dp_attention.py, layers/moe/fused_moe_triton/layer.py,
model_executor/pool_configurator.py and managers/scheduler.py of 0.5.23.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from headcount.arch.config_parts import has_experts
from headcount.model.mixers import Recurrent

from ...budget import Term
from ...planned_model import PlannedModel
from ...request import PlanRequest, Workload
from ...stage_bytes import weighed_as_planned
from ..launch import option
from .drafts import draft_weights, prediction_layers
from .spread import Spread

# Since then a draft is loaded before the pools are sized (Scheduler.maybe_init_draft_worker), and
# its weights and cache are in the share that --mem-fraction-static gives; before, outside of it.
DRAFT_FIRST_SINCE = (0, 5, 14)


def sglang_spread(model: PlannedModel, work: Workload) -> Spread:
    """With data parallel attention each of its ranks has attention and embedding whole, or cut over
    the ranks of tp that are left to it; MLPs, experts and the output head are cut over all of tp.
    Of `ep_size` ranks each has some of the experts whole."""
    request = work.request
    tp, each = request.attention_tp, Fraction(1, request.tp)
    parts = {}
    if tp != request.tp:
        parts = dict.fromkeys(("mlp", "shared experts", "experts", "head"), each)
    experts_tp = request.tp // request.ep_size
    why = f"attention of each of {request.dp} ranks" if parts else ""
    if request.num_redundant_experts and (count := _experts(model, work)):
        parts["experts"] = each * Fraction(count + request.num_redundant_experts, count)
        why = " + ".join(filter(None, (why, f"{request.num_redundant_experts} redundant experts")))
    return Spread(tp=tp, parts=tuple(parts.items()), why=why, experts_tp=experts_tp)  # type: ignore[arg-type]


def _experts(model: PlannedModel, work: Workload) -> int:
    found = weighed_as_planned(model, work)
    return (
        max((m.copies for m, _ in found.modules if m.kind == "experts"), default=0) if found else 0
    )


def draft_layers(model: PlannedModel, work: Workload) -> int:
    """Layers of what drafts: a cell of the pool has as much more, each as one of the model's."""
    speculation = work.request.speculation
    if speculation is None or not work.version.at_least(*DRAFT_FIRST_SINCE):
        return 0
    if speculation.draft is not None:
        return len(speculation.draft.spec.layers)
    return max(1, prediction_layers(model)) if speculation.takes_hidden_states else 0


def draft_term(model: PlannedModel, work: Workload) -> Iterator[Term]:
    """Its weights, on the last stage."""
    speculation = work.request.speculation
    if speculation is None or not work.version.at_least(*DRAFT_FIRST_SINCE):
        return
    found = draft_weights(model, work, speculation, sglang_spread(model, work))
    if found is not None:
        yield found


def added_refused(model: PlannedModel, work: Workload) -> Iterator[str]:
    request = work.request
    is_moe = has_experts(model.config, model.spec.model_type)
    if (request.ep_size > 1 or request.num_redundant_experts) and not is_moe:
        yield "--ep-size and redundant experts need experts, and the model has none"
    if is_moe and request.ep_size > 1:
        kept = _experts(model, work) + request.num_redundant_experts
        if kept % request.ep_size:
            yield f"{kept} experts do not spread evenly over --ep-size {request.ep_size}"


def added_notes(model: PlannedModel, work: Workload) -> Iterator[str]:
    """What the figures leave out."""
    speculation = work.request.speculation
    if speculation is None:
        return
    if any(isinstance(mixer, Recurrent) for n in model.spec.layers for mixer in n.mixers):
        yield "Recurrent state that SGLang keeps for each drafted token is not counted."
    is_weighed = speculation.draft is not None or speculation.method == "mtp"
    if is_weighed and not work.version.at_least(*DRAFT_FIRST_SINCE):
        yield "Before 0.5.14 a draft's weights and cache are outside of --mem-fraction-static."


def added_options(request: PlanRequest) -> Iterator[str]:
    yield from option("--dp-size", request.dp, 1)
    if request.enable_dp_attention:
        yield "--enable-dp-attention"
    yield from option("--ep-size", request.ep_size, 1)
    yield from option("--ep-num-redundant-experts", request.num_redundant_experts, 0)
    if request.cpu_offload_gb:
        yield f"--cpu-offload-gb {ceil(request.cpu_offload_gb)}"
    if request.speculative_algorithm is not None:
        yield request.speculative_algorithm.given
