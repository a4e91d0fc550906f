"""A head that is stored beside `tie_word_embeddings: true` and holds other values: it is the head
that transformers loads, so that the result says false."""

from collections.abc import Mapping
from typing import Any

from headcount.arch.read_config import read_config

from .source import ConversionSource

_KEY = "tie_word_embeddings"


def untied_config(
    source: ConversionSource, config: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """`config` with the flag cleared where the stored head is not the embedding, and what changed.

    Reads both matrices. As it is where the flag decides about more than the one head: transformers
    then unties the head by its values alone, in the result as in the source.
    """
    new = dict(config)
    head = source.audit.census.head if source.audit.census else None
    if head is None or not source.audit.spec.tie_word_embeddings or _ties_more(head.name):
        return new, ()
    from ..scan.reading import tied_values  # imports torch, which other plans do without

    found = tuple(tied_values(source.audit, source.checkpoint))
    if [one.name for one in found] != [head.name] or found[0].same:
        return new, ()
    inner = new.get("text_config")
    if isinstance(inner, dict):
        new["text_config"] = {**inner, _KEY: False}
    new[_KEY] = False
    if read_config(new, source.audit.source.where).spec.tie_word_embeddings:
        return dict(config), ()  # a type that always ties
    return new, (f"{_KEY}: true -> false ({head.name} is not the embedding)",)


def _ties_more(head: str) -> bool:
    """BERT's kind of head also shares its bias with another module, by the same flag."""
    return head.endswith("decoder.weight")
