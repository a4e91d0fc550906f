"""How attention heads lie in a stored tensor, as data. `stream/heads.py` reads and builds them."""

from dataclasses import dataclass, replace


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
    one-dimensional tensor, a bias, is the same either way.
    """

    blocks: tuple[Block, ...]
    axis: int = 0

    @property
    def rows(self) -> int:
        """Length of the tensor along `axis`."""
        return sum(block.heads * block.rows for block in self.blocks)

    def pooled(self, members: int, *, axis: int = 0) -> "Blocks":
        """The layout after `members` K/V heads became one each; query heads stay."""
        blocks = (
            block if block.part == "q" else replace(block, heads=block.heads // members)
            for block in self.blocks
        )
        return Blocks(blocks=tuple(blocks), axis=axis)


def one_part(part: str, heads: int, rows: int) -> Blocks:
    """A tensor that holds heads of one part only."""
    return Blocks(blocks=(Block(part=part, heads=heads, rows=rows),))


def query_key_value(heads: int, head_dim: int, *, axis: int) -> Blocks:
    """[q|k|v] with as many K/V heads as query heads."""
    blocks = tuple(Block(part=part, heads=heads, rows=head_dim) for part in "qkv")
    return Blocks(blocks=blocks, axis=axis)
