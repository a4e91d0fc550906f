"""How the heads of a projection lie before and after, in a model that stays in its class."""

from .draft import Heads
from .layout import Block, Blocks, interleaved, one_part, query_key_value


def layouts(heads: Heads, part: str, fused: str) -> tuple[Blocks, Blocks]:
    """How the heads of a projection lie before and after."""
    if part != "qkv":
        rows = heads.head_dim if part == "k" else heads.value_dim
        source = one_part(part, heads.before, rows)
        return source, merged(source, heads)
    count, d = heads.num_attention_heads, heads.head_dim
    if fused == "heads":
        source = interleaved(d, repeats=heads.before, query_heads=count // heads.before)
        per_head = heads.padded_heads // heads.after
        return source, interleaved(d, repeats=heads.after, query_heads=per_head)
    source = query_key_value(count, d, key_value_heads=heads.before)
    return source, merged(source, heads)


def merged(layout: Blocks, heads: Heads) -> Blocks:
    """One block per part: as many K/V heads as there are after, and all query heads."""
    query = heads.padded_heads if heads.is_padded else heads.num_attention_heads
    counts = {"q": query, "k": heads.after, "v": heads.after}
    return Blocks(
        blocks=tuple(
            Block(part=block.part, heads=counts[block.part], rows=block.rows)
            for block in layout.blocks
        )
    )
