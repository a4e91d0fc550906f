"""What tensor parallelism stores more than once, when ranks outnumber K/V heads or with MLA."""

from dataclasses import dataclass
from math import ceil

from headcount.model.mixers import Recurrent

from .cache import rank_cache
from .parallel import attentions, key_value_copies, rank_mixer, replicated_parameters
from .planning import ModelPlan


@dataclass(frozen=True, kw_only=True, slots=True)
class Replication:
    """Bytes beyond one copy, over all ranks. `copies` is how many ranks store the same K/V head.

    The head counts are those of one rank, None where layers differ.
    """

    ranks: int
    num_attention_heads: int | None
    num_key_value_heads: int | None
    copies: int
    cache_bytes: int
    weights_bytes: int


def replication(plan: ModelPlan) -> Replication:
    """The waste of the plan's tp; all of it is zero at tp 1."""
    tp, spec, workload = plan.memory.rank.tp, plan.spec, plan.workload
    mixers = set(attentions(spec))
    ranks = [rank for m in mixers if not isinstance(rank := rank_mixer(m, tp), Recurrent)]
    once = rank_cache(spec, tp=1, encoder_tokens=workload.encoder_tokens, bits=workload.kv_bits)
    stored = tp * plan.memory.rank.cache_bytes(workload.context, workload.batch_size)
    needed = once.bytes_per_sequence(workload.context) * workload.batch_size
    extra = replicated_parameters(spec, tp) * plan.weights.per_attention_parameter
    return Replication(
        ranks=tp,
        num_attention_heads=_only({mixer.num_attention_heads for mixer in ranks}),
        num_key_value_heads=_only({mixer.num_key_value_heads for mixer in ranks}),
        copies=max((key_value_copies(mixer, tp) for mixer in mixers), default=1),
        cache_bytes=stored - needed,
        weights_bytes=ceil(extra),
    )


def _only(counts: set[int]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None
