"""Attention with a gate on its output, beside recurrent layers."""

from dataclasses import replace

from headcount.model.mixers import Attention, Mixer

from ..attention.layers import attention, kind_window
from ..attention.shape import AttentionShape
from ..config_view import ConfigView
from .indexed import with_key_value


def by_query(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """q_proj computes a gate for every element of its output, too (Qwen3-Next)."""
    return (
        replace(attention(shape, view, window=kind_window(shape, view, kind)), query_gate=True),
    )


def indexed_by_query(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """The same with an indexer (Qwen4)."""
    (mixer,) = with_key_value("indexer_n_heads", "indexer_head_dim")(shape, view, kind)
    assert isinstance(mixer, Attention)
    return (replace(mixer, query_gate=True),)
