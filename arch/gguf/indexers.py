"""The keys that sparse attention chooses tokens by, cached beside K and V or beside the latent.

llama.cpp: src/llama-kv-cache-dsa.cpp, -dsa-iswa.cpp, -msa.cpp and src/llama-memory-hybrid-idx.cpp.
"""

from headcount.model.mixers import State

from .form import Gguf, Indexer
from .keys import Keys


def indexer_states(form: Gguf, keys: Keys, count: int) -> list[tuple[State, ...]]:
    """What each of `count` layers keeps for its indexer; nothing where it has none."""
    size = keys.number("attention.indexer.key_length")
    if form.indexer is None or not size:
        return [()] * count
    if keys.number("attention.indexer.kpool"):
        size *= 3  # a key, a gate and the pooled key
    values = _value_length(keys) if form.indexer.keeps_values else 0
    owners = _owners(form.indexer, keys, count)
    kept = State(per_token=size + values, values=values)
    return [(kept,) if owns else () for owns in owners]


def _value_length(keys: Keys) -> int:
    """Of one head, which the indexer's cache has."""
    heads = keys.per_layer("attention.head_count", 1, None)[0]
    default = keys.need("embedding_length") // heads if heads else None
    return keys.integer("attention.value_length", default) or 0


def _owners(indexer: Indexer, keys: Keys, count: int) -> list[bool]:
    """Which layers have an indexer of their own; the others use that of a layer before."""
    listed = keys.flags("attention.indexer.types", count)
    if listed is not None:
        return listed
    return [True] * count if indexer.owners is None else indexer.owners(keys, count)
