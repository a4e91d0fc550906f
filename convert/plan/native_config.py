"""The config of a model that stays in its class: the new number of K/V heads, and nothing else."""

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from headcount.audit.family.table import FAMILIES, SPELLINGS

from .draft import Heads
from .errors import CannotConvertError
from .source import Source


def config(source: Source, heads: Heads) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The source's config with the new count; every other key as it was."""
    new = deepcopy(dict(source.config))
    holder, prefix = _language_model(new, source)
    old = holder.get("num_key_value_heads")
    holder["num_key_value_heads"] = heads.after
    changes = [f"{prefix}num_key_value_heads: {'absent' if old is None else old} -> {heads.after}"]
    derived = source.audit.spec.hidden_size // heads.num_attention_heads
    if holder.get("head_dim") is None and heads.head_dim != derived:
        holder["head_dim"] = heads.head_dim
        changes.append(f"{prefix}head_dim: absent -> {heads.head_dim} (it was the class's default)")
    return new, tuple(changes)


def _language_model(new: dict[str, Any], source: Source) -> tuple[dict[str, Any], str]:
    """The object that describes the language model, and the words in front of its keys."""
    model_type = str(new.get("model_type"))
    row = FAMILIES.get(SPELLINGS.get(model_type, model_type))
    text: Mapping[str, Any] | None = new.get(row.text) if row and row.text else None
    if row is None or row.text is None or (text is None and "hidden_size" in new):
        return new, ""
    if not isinstance(text, dict):
        raise CannotConvertError(
            f"{source.folder}: config.json has no {row.text}, so there is no place for the new"
            " number of heads: load and save it once with transformers"
        )
    return text, f"{row.text}."
