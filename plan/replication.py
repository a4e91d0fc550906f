"""What tensor parallelism stores more than once, when ranks outnumber K/V heads or with MLA."""

from math import ceil
from typing import NamedTuple

from headcount.model.mixers import Recurrent

from .cache import rank_cache
from .parallel import heads_or_latents, key_value_copies, rank_mixer, replicated_parameters
from .plan import Plan


class Replication(NamedTuple):
    """Bytes beyond one copy, over all ranks. `copies` is how many ranks store the same K/V head.

    The head counts are those of one rank, None where layers differ.
    """

    ranks: int
    num_attention_heads: int | None
    num_key_value_heads: int | None
    copies: int
    cache_bytes: int
    weights_bytes: int


def replication(plan: Plan) -> Replication:
    """The waste of the plan's tp; all of it is zero at tp 1."""
    tp, spec = plan.request.attention_tp, plan.spec
    mixers = set(heads_or_latents(spec))
    ranks = [rank for m in mixers if not isinstance(rank := rank_mixer(m, tp), Recurrent)]
    copies = max((key_value_copies(mixer, tp) for mixer in mixers), default=1)
    each = plan.weights.per_attention_parameter if plan.weights else 0
    return Replication(
        ranks=plan.request.tp,
        num_attention_heads=_only({mixer.num_attention_heads for mixer in ranks}),
        num_key_value_heads=_only({mixer.num_key_value_heads for mixer in ranks}),
        copies=copies,
        cache_bytes=_copied_cache(plan),
        weights_bytes=ceil(replicated_parameters(spec, tp) * each),
    )


def _copied_cache(plan: Plan) -> int:
    """What all ranks keep, less what one would alone, without an engine's rounding to blocks."""
    work = plan.workload
    kept = [
        rank_cache(plan.model, tp=tp, encoder_tokens=work.encoder_tokens, bits=work.kv_bits)
        for tp in (plan.request.attention_tp, 1)
    ]
    batch = plan.request.each_of_dp(work.batch_size)
    ranks, alone = (cache.needed(work.context, batch) for cache in kept)
    return plan.request.attention_tp * ranks - alone


def _only(counts: set[int]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None
