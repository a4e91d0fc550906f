"""Attention with a gate on its output, beside recurrent layers."""

from dataclasses import replace
from typing import TYPE_CHECKING

from headcount.model.mixers import Attention, Mixer

from ..layers import attention, kind_window, latent_attention
from ..view import ConfigView
from .indexed import with_key_value

if TYPE_CHECKING:
    from ..row import Family


def by_query(family: "Family", view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """q_proj computes a gate for every element of its output, too (Qwen3-Next)."""
    return (
        replace(attention(family, view, window=kind_window(family, view, kind)), query_gate=True),
    )


def indexed_by_query(family: "Family", view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """The same with an indexer (Qwen4)."""
    (mixer,) = with_key_value("indexer_n_heads", "indexer_head_dim")(family, view, kind)
    assert isinstance(mixer, Attention)
    return (replace(mixer, query_gate=True),)


def per_head_on_demand(family: "Family", view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """A gate per head, unless `use_attention_gate` is false (LFM3)."""
    mixer = attention(family, view, window=kind_window(family, view, kind))
    gate = mixer.hidden_size * mixer.num_attention_heads * view.flag("use_attention_gate")
    return (replace(mixer, other_parameters=gate),)


def latent_per_head(family: "Family", view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Latent attention with a gate per head (Bailing)."""
    mixer = latent_attention(view)
    return (replace(mixer, other_parameters=mixer.hidden_size * mixer.num_attention_heads),)
