"""How vLLM spreads a mixture of experts over the ranks of tensor and data parallel.

A rank of data parallel has attention, dense layers and embeddings of its own, cut by its tp alone,
and a cache of its own. Experts are cut over the tp x dp ranks of all of them: each expert's inner
width or, with --enable-expert-parallel, their number (FusedMoEParallelConfig.make of
vllm/model_executor/layers/fused_moe/config.py). A dense model's ranks are whole copies.
"""

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from headcount.arch.config_parts import has_experts
from headcount.model.errors import HeadcountError

from ....planned_model import PlannedModel
from ....request import Workload
from ....stage_bytes import weighed_as_planned
from ...added.spread import Spread, over_tp
from ...version import Version
from ..encoder import without_towers

_EVEN_SINCE = (0, 11)  # what is left over goes to the first ranks, before all to the last
# Shared experts see a part of the tokens each, and are whole on every rank, since then
# (ParallelConfig.use_sequence_parallel_moe).
_SEQUENCE_PARALLEL_SINCE = (0, 11)
# Encoders that no prompt may use are not loaded (_mark_tower_model of models/interfaces.py).
_NO_TOWERS_SINCE = (0, 15)


def vllm_spread(model: PlannedModel, work: Workload) -> Spread:
    """Of one rank, that with most experts. Raises HeadcountError where their number is not
    known."""
    request = work.request
    ranks = request.tp * request.dp
    is_moe = has_experts(model.config, model.spec.model_type)
    if without_towers(model, work) and work.version.at_least(*_NO_TOWERS_SINCE):
        found = _of_experts(model, work, ranks, is_moe)
        return found._replace(parts=(*found.parts, ("tower", Fraction(0))))
    return _of_experts(model, work, ranks, is_moe)


def _of_experts(model: PlannedModel, work: Workload, ranks: int, is_moe: bool) -> Spread:
    request = work.request
    if not is_moe or (ranks == request.tp and not request.enable_expert_parallel):
        return over_tp(model, work)
    if not request.enable_expert_parallel:
        return Spread(
            tp=request.tp,
            parts=(("experts", Fraction(1, ranks)),),
            why=f"experts over {ranks} ranks",
            experts_tp=ranks,
        )
    return _whole_experts(model, work, ranks)


def _whole_experts(model: PlannedModel, work: Workload, ranks: int) -> Spread:
    request = work.request
    if request.dp == 1 and not request.num_redundant_experts and not _counts(model, work):
        return over_tp(model, work)._replace(experts_tp=1)  # as many bytes, however many there are
    count = expert_count(model, work)
    own = most_of_a_rank(count + request.num_redundant_experts, ranks, work.version)
    parts = [("experts", Fraction(own, count))]
    is_sequence = request.tp > 1 and request.dp > 1
    if is_sequence and work.version.at_least(*_SEQUENCE_PARALLEL_SINCE):
        parts.append(("shared experts", Fraction(1)))
    return Spread(
        tp=request.tp,
        parts=tuple(parts),  # type: ignore[arg-type]
        why=f"{own} of {count} experts on each of {ranks} ranks",
    )


def uneven_experts(model: PlannedModel, work: Workload) -> Iterator[str]:
    """Why EPLB does not take so many redundant ones. Raises HeadcountError as `vllm_spread`."""
    request = work.request
    count, redundant, ranks = (
        expert_count(model, work),
        request.num_redundant_experts,
        request.tp * request.dp,
    )
    if (count + redundant) % ranks:
        fewer = redundant - (count + redundant) % ranks
        more = fewer + ranks
        would = f"{fewer} or {more}" if fewer >= 0 else str(more)
        yield (
            f"{count} experts and {redundant} redundant ones do not spread evenly over {ranks}"
            f" ranks: {would} redundant ones would"
        )


def most_of_a_rank(experts: int, ranks: int, version: Version) -> int:
    """Experts of the rank that has most (determine_expert_map of
    vllm/model_executor/layers/fused_moe)."""
    if version.at_least(*_EVEN_SINCE):
        return ceil(experts / ranks)
    return experts - experts // ranks * (ranks - 1)


def _counts(model: PlannedModel, work: Workload) -> set[int]:
    """The numbers of experts that layers have; none where the config does not tell."""
    found = weighed_as_planned(model, work)
    return {m.copies for m, _ in found.modules if m.kind == "experts"} if found else set()


def expert_count(model: PlannedModel, work: Workload) -> int:
    """Experts of a layer, those that are shared left out. Raises HeadcountError."""
    copies = _counts(model, work)
    if not copies:
        raise HeadcountError(
            f"{model.model_id}: the config does not tell how many experts there are, so how they"
            " spread over ranks cannot be told"
        )
    return max(copies)
