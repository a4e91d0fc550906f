"""How attention heads lie in a stored tensor, as data. `stream/heads.py` reads and builds them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from headcount.audit.mixers import Attention


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


def one_part(part: str, heads: int, rows: int, *, axis: int = 0) -> Blocks:
    """A tensor that holds heads of one part only."""
    return Blocks(blocks=(Block(part=part, heads=heads, rows=rows),), axis=axis)


def query_key_value(heads: int, head_dim: int, *, axis: int) -> Blocks:
    """[q|k|v] with as many K/V heads as query heads."""
    blocks = tuple(Block(part=part, heads=heads, rows=head_dim) for part in "qkv")
    return Blocks(blocks=blocks, axis=axis)


def fused(name: str, mixer: Attention, *, axis: int = 0) -> Blocks:
    """The layout `name` (see `TensorNames.fused`) of a projection that holds q, k and v. A part may
    come in several blocks; its heads are in order all the same."""
    return Blocks(blocks=_FUSED[name](mixer), axis=axis)


def _block(part: str, heads: int, mixer: Attention) -> Block:
    return Block(part=part, heads=heads, rows=mixer.v_head_dim if part == "v" else mixer.head_dim)


def _parts(mixer: Attention) -> tuple[Block, ...]:
    kv = mixer.num_key_value_heads
    counts = {"q": mixer.num_attention_heads, "k": kv, "v": kv}
    return tuple(_block(part, heads, mixer) for part, heads in counts.items())


def _by_head(mixer: Attention) -> tuple[Block, ...]:
    counts = {"q": mixer.group_size, "k": 1, "v": 1}
    one = tuple(_block(part, heads, mixer) for part, heads in counts.items())
    return one * mixer.num_key_value_heads


def _quarters(mixer: Attention) -> tuple[Block, ...]:
    return tuple(_block(part, mixer.num_attention_heads // 4, mixer) for part in "qvk") * 4


_FUSED: Mapping[str, Callable[[Attention], tuple[Block, ...]]] = {
    "parts": _parts,
    "heads": _by_head,
    "quarters": _quarters,
}
