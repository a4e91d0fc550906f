"""Query heads that add nothing: zero rows of q, and zero columns of o behind them.

With them the K/V heads of an attention can be merged in runs that are not all of one length. A head
of zeros attends evenly, and what it finds is multiplied by zero.
"""

from headcount.arch.tensors.places import PLAIN, Place
from headcount.sources.safetensors import TensorInfo

from .draft import Heads
from .layout import Blocks, one_part
from .steps import Pad, Step, copy

# Modules beside the projections that have numbers for each query head, along their first axis.
PER_HEAD = ("sinks", "attention_sink_bias", "softmax_offset", "g_proj", "gate_proj", "gate_bias")


def padded(tensor: TensorInfo, place: Place, heads: Heads) -> Step | None:
    """The step for a tensor of query heads, or of none; None where padding would change a result:
    a norm over all heads, say."""
    part, count, shape = place.part, heads.num_attention_heads, tensor.shape
    if place.parameter not in PLAIN or not shape:
        return None
    if part == "q" and shape[0] % count == 0:
        return _pad(tensor, heads, one_part("q", count, shape[0] // count))
    if part == "o":
        return _output(tensor, heads)
    if part == "norm":
        return _norm(tensor, heads)
    if part == "other" and place.module.rpartition(".")[2] in PER_HEAD and shape[0] % count == 0:
        return _pad(tensor, heads, one_part("q", count, shape[0] // count))
    return None


def _output(tensor: TensorInfo, heads: Heads) -> Step | None:
    """The columns of a weight; a bias belongs to no head."""
    if len(tensor.shape) == 1:
        return copy(tensor)
    layout = one_part("o", heads.num_attention_heads, heads.value_dim)
    if len(tensor.shape) != 2 or tensor.shape[1] != layout.rows:
        return None
    return _pad(tensor, heads, Blocks(blocks=layout.blocks, axis=-1))


def _norm(tensor: TensorInfo, heads: Heads) -> Step | None:
    """A norm that all heads share, or one with a row per head."""
    if tensor.shape == (heads.head_dim,):
        return copy(tensor)
    if tensor.shape == (heads.num_attention_heads, heads.head_dim):
        return _pad(tensor, heads, one_part("q", heads.num_attention_heads, 1))
    return None


def _pad(tensor: TensorInfo, heads: Heads, source: Blocks) -> Step:
    slots = heads.query_slots
    (block,) = source.blocks
    axis = source.axis % len(tensor.shape)
    shape = list(tensor.shape)
    shape[axis] = len(slots) * block.rows
    return Step(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=tuple(shape),
        sources=(tensor,),
        action=Pad(source=source, slots=slots),
    )
