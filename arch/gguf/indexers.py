"""The keys that sparse attention chooses tokens by, cached beside K and V or beside the latent.

llama.cpp: src/llama-kv-cache-dsa.cpp, -dsa-iswa.cpp, -msa.cpp and src/llama-memory-hybrid-idx.cpp.
"""

from headcount.model.mixers import State

from .keys import Keys

_INDEXED = frozenset(
    {"deepseek32", "glm-dsa", "glm5-next", "hy_v4", "dots3note", "qwen4exp", "minimax-m3"}
)


def indexer_states(keys: Keys, count: int) -> list[tuple[State, ...]]:
    """What each of `count` layers keeps for its indexer; nothing where it has none."""
    size = keys.number("attention.indexer.key_length")
    if keys.architecture not in _INDEXED or not size:
        return [()] * count
    if keys.number("attention.indexer.kpool"):
        size *= 3  # a key, a gate and the pooled key
    if keys.architecture == "minimax-m3":  # its cache of one key head has values, too
        size += keys.number("attention.value_length")
    return [(State(per_token=size),) if owns else () for owns in _owners(keys, count)]


def _owners(keys: Keys, count: int) -> list[bool]:
    """Which layers have an indexer of their own; the others use that of a layer before."""
    listed = keys.flags("attention.indexer.types", count)
    if listed is not None:
        return listed
    if keys.architecture == "minimax-m3":
        dense = keys.number("leading_dense_block_count")
        return [i >= dense for i in range(count)]
    if keys.architecture == "glm-dsa" and keys.number("context_length") >= 2**20:
        return [i < 2 or (i - 2) % 4 == 0 for i in range(count)]  # GLM-5.2, before it was a key
    return [True] * count
