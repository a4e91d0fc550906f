"""Steps for tensors of an attention whose K/V heads become fewer, read off the map of heads.

Where runs of K/V heads are not all of one length, query heads are padded: zero rows of q, and zero
columns of o behind them. A head of zeros attends evenly, and what it finds is multiplied by zero.
Where query heads are pruned, their rows of q and columns of o go, and those of K/V heads that
nobody reads any more.
"""

from collections.abc import Iterator
from dataclasses import replace

from headcount.arch.tensors.blocks import Block, Blocks
from headcount.arch.tensors.places import PLAIN_PARAMETERS
from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import HeadTensors
from .heads import Heads
from .steps import Pad, Pool, Role, Step, computed, copy

_PADDED = ("q", "o", "norm", "other")


def pooled(held: HeadTensors, heads: Heads, target: Blocks) -> Step:
    """One tensor with K or V heads, which lie as `target` says once they are fewer."""
    shape = list(held.tensor.shape)
    shape[target.axis] = target.rows
    action = Pool(
        layer=held.place.index,
        role=_role(held),
        members=heads.members,
        source=held.blocks,
        target=target,
        runs=heads.runs if heads.is_renumbered else (),
        slots=heads.query_slots if heads.is_renumbered and held.blocks.heads("q") else (),
        kept=heads.staying.key_value if heads.is_pruned else (),
        cross=held.place.cross,
    )
    return computed(held.tensor.name, held.tensors, tuple(shape), action)


def pooled_list(held: HeadTensors, heads: Heads, tensor: TensorInfo) -> Iterator[Step]:
    """What stands in place of `tensor`, one of a list of norms: the first one of a run yields the
    new head, the others nothing."""
    number, members = held.tensors.index(tensor), heads.members
    if number % members:
        return
    head = number // members
    (block,) = held.blocks.blocks
    source = Blocks(blocks=(replace(block, heads=members),))
    action = Pool(
        layer=held.place.index,
        role="norm",
        members=members,
        source=source,
        target=source.pooled(members),
        first_head=head,
        cross=held.place.cross,
    )
    sources = held.tensors[number : number + members]
    start, _, parameter = tensor.name.rpartition(".")
    name = f"{start.rpartition('.')[0]}.{head}.{parameter}"
    yield computed(name, sources, tensor.shape, action)


def placed(held: HeadTensors, heads: Heads) -> Step | None:
    """The step for a tensor of query heads, or of none; None where more or fewer of them would
    change a result: a norm over all heads, say."""
    layout, part = held.layout, held.place.part
    if layout is None or held.place.parameter not in PLAIN_PARAMETERS or part not in _PADDED:
        return None
    if not layout.blocks:
        return copy(held.tensor)
    rows = layout.rows // heads.num_attention_heads
    over_all_heads = part == "norm" and rows > 1
    if over_all_heads or held.length != layout.rows:
        return None
    block = Block(part=layout.blocks[0].part, heads=heads.num_attention_heads, rows=rows)
    shape = list(held.tensor.shape)
    shape[layout.axis % len(shape)] = heads.padded_heads * rows
    action = Pad(source=Blocks(blocks=(block,), axis=layout.axis), slots=heads.query_slots)
    return computed(held.tensor.name, held.tensors, tuple(shape), action)


def _role(held: HeadTensors) -> Role:
    """Only weights say how far heads moved."""
    if not held.is_projection:
        return "norm"
    return "bias" if held.is_bias else "weight"
