"""How attention heads lie in a stored tensor, as data: rows or columns, one part or several."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from headcount.model.mixers import Attention


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """`heads` heads of one part, each of `rows` consecutive rows: head_dim for a projection or its
    bias, 1 for a norm stored as [heads, head_dim]."""

    part: str
    heads: int
    rows: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Blocks:
    """Parts one after the other along `axis`: a projection of its own, or a fused [q|k|v].

    `axis` is 0 for rows of a Linear ([out, in]), -1 for the columns of a Conv1D ([in, out]). A
    one-dimensional tensor, a bias, is the same either way. The sequence of blocks stands `repeats`
    times: once in [q|k|v], once per head in GPT-NeoX's [h, (q, k, v), d], once per K/V head in
    Falcon's new decoder, four times in CodeGen. `heads` of a block are those of one repeat, and
    heads are numbered from the first repeat to the last.
    """

    blocks: tuple[Block, ...]
    axis: int = 0
    repeats: int = 1

    @property
    def rows(self) -> int:
        """Length of the tensor along `axis`."""
        return self.repeats * sum(block.heads * block.rows for block in self.blocks)

    def heads(self, part: str) -> int:
        """How many heads of `part` the tensor holds."""
        return self.repeats * sum(block.heads for block in self.blocks if block.part == part)

    def pooled(self, members: int, *, axis: int = 0) -> "Blocks":
        """The layout [q|k|v] after `members` K/V heads became one each; other heads stay."""
        blocks = (
            replace(block, heads=self.heads(block.part) // (members if block.part in "kv" else 1))
            for block in self.blocks
        )
        return Blocks(blocks=tuple(blocks), axis=axis)

    def with_heads(self, counts: Mapping[str, int]) -> "Blocks":
        """The layout [q|k|v] of the same parts with so many heads of each."""
        blocks = (replace(block, heads=counts[block.part]) for block in self.blocks)
        return Blocks(blocks=tuple(blocks), axis=self.axis)

    def regrouped(self, *, query_heads: int, key_value_heads: int) -> "Blocks":
        """The same kind of layout with other numbers of heads: where each K/V head has its query
        heads beside it (`interleaved`), it still has."""
        if self.repeats > 1:
            each = query_heads // key_value_heads
            counts, repeats = {"q": each, "k": 1, "v": 1}, key_value_heads
        else:
            counts, repeats = {"q": query_heads, "k": key_value_heads, "v": key_value_heads}, 1
        blocks = tuple(replace(block, heads=counts[block.part]) for block in self.blocks)
        return replace(self, blocks=blocks, repeats=repeats)

    def only(self, parts: str) -> "Blocks":
        """The blocks of `parts`, in the order that they are given in."""
        blocks = {block.part: block for block in self.blocks}
        return replace(self, blocks=tuple(blocks[part] for part in parts))


def one_part(part: str, heads: int, rows: int, *, axis: int = 0) -> Blocks:
    """A tensor that holds heads of one part only."""
    return Blocks(blocks=(Block(part=part, heads=heads, rows=rows),), axis=axis)


def query_key_value(
    heads: int, head_dim: int, *, key_value_heads: int | None = None, axis: int = 0
) -> Blocks:
    """[q|k|v], with as many K/V heads as query heads unless `key_value_heads` says how many."""
    counts = {"q": heads}
    blocks = tuple(
        Block(part=part, heads=counts.get(part, key_value_heads or heads), rows=head_dim)
        for part in "qkv"
    )
    return Blocks(blocks=blocks, axis=axis)


def interleaved(
    head_dim: int,
    *,
    repeats: int,
    query_heads: int = 1,
    key_value_heads: int = 1,
    order: str = "qkv",
) -> Blocks:
    """`repeats` times the parts in `order`, of that many heads each: one of each per query head in
    GPT-NeoX, the query heads of one K/V head, its k and its v in Falcon's new decoder."""
    counts = {"q": query_heads, "k": key_value_heads, "v": key_value_heads}
    blocks = tuple(Block(part=part, heads=counts[part], rows=head_dim) for part in order)
    return Blocks(blocks=blocks, repeats=repeats)


def fused(name: str, mixer: Attention, *, axis: int = 0) -> Blocks:
    """The layout `name` (see `TensorNames.fused`) of a projection that holds q, k and v."""
    heads, kv = mixer.num_attention_heads, mixer.num_key_value_heads
    if name == "heads":
        return interleaved(mixer.head_dim, repeats=kv, query_heads=mixer.group_size)
    if name == "quarters":
        quarter = heads // 4
        return interleaved(
            mixer.head_dim, repeats=4, query_heads=quarter, key_value_heads=quarter, order="qvk"
        )
    return query_key_value(heads, mixer.head_dim, key_value_heads=kv, axis=axis)
