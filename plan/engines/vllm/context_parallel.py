"""Ranks among which vLLM shares the tokens of a cache: which numbers of them it takes.

From `_verify_args` of vllm/config/parallel.py and `verify_with_parallel_config` of
vllm/config/model.py, 0.12 to 0.32: decode context parallel reuses the ranks of tp.
"""

from collections.abc import Iterator

from headcount.model.mixers import LatentAttention

from ...parallel import heads_or_latents
from ...planned_model import PlannedModel
from ...request import Workload


def context_refusals(model: PlannedModel, work: Workload) -> Iterator[str]:
    """Each K/V head must lie on several ranks of tp, among which its tokens are shared; a latent
    lies on all of them."""
    ranks, tp = work.request.context_ranks, work.request.tp
    if ranks == 1:
        return
    if tp % ranks:
        yield f"{ranks} context ranks do not divide tp {tp}"
        return
    mixers = heads_or_latents(model.spec)
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        return
    for heads, kv in sorted({(m.num_attention_heads, m.num_key_value_heads) for m in mixers}):
        if tp <= kv or ranks > tp // kv:
            yield (
                f"{ranks} context ranks need tp {ranks * kv} or more: each of {kv} K/V heads lies"
                f" on {max(1, tp // kv)} of {tp} ranks"
            )
        elif heads // kv % ranks:
            yield f"{ranks} context ranks do not divide the {heads // kv} query heads of a K/V head"
