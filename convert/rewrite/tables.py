"""Tables of what each head adds to its scores by distance (T5's relative position bias).

Such a table belongs to one layer, and its numbers may be for those that follow, too. Heads can
change places where the table's columns follow them: then in all layers that read it, or in none.
"""

from collections.abc import Iterable, Sequence

from ..attention_map.attention_tensors import AttentionTensors
from ..attention_map.layouts import SCORE_TABLE
from ..plan.heads import HeadsByLayer


def tables_read(attentions: Iterable[AttentionTensors]) -> dict[int, int | None]:
    """Layer -> the layer whose table its self-attention reads: its own, or else that of the nearest
    layer before it. None: there is no table, or it is not known how heads lie in it.

    Which layers have one is the class's to say. It ignores a table that a file holds beside that.
    """
    found: dict[int, int | None] = {}
    read: int | None = None
    for one in sorted(attentions, key=lambda one: one.where):
        layer, cross = one.where
        if not cross:
            if one.mixer.other_parameters:
                read = layer if _has_known_table(one) else None
            found[layer] = read
    return found


def _has_known_table(one: AttentionTensors) -> bool:
    return any(item.module.rpartition(".")[2] == SCORE_TABLE for item in one.beside)


def alike(heads: HeadsByLayer, layers: Sequence[int]) -> bool:
    """Whether the self-attentions of all `layers` get the same number of K/V heads, fewer than they
    have."""
    found = {heads.layers.get((layer, False)) for layer in layers}
    return len(found) == 1 and all(own is not None and own.is_changed for own in found)
