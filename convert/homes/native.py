"""A model that stays in its class, which holds fewer K/V heads.

K/V heads are merged wherever the map says that they lie; towers, recurrent layers and what belongs
to query heads or to no head go along as they are, or with padding.
"""

from collections.abc import Iterator

from headcount.sources.safetensors import TensorInfo

from ..attention_map.attention_tensors import HeadTensors
from ..attention_map.layouts import KEY_NORMS, has_word
from ..plan.head_steps import placed, pooled, pooled_list
from ..plan.heads import Heads, HeadsByLayer
from ..plan.pruning import KeptHeads
from ..plan.refusals.tensors import check_native_layers, check_native_tensors
from ..plan.refusals.types import NATIVE, refuse
from ..plan.request import KeyValueHeads
from ..plan.source import ConversionSource
from ..plan.steps import Step, copy
from .home import Draft, Home
from .native_heads import native_heads

_NORM_NOTE = (
    "the k norm runs over all K/V heads of a token: with fewer heads its mean square changes, so"
    " the norm's weight is pooled but the result is only exact where pooled heads agree"
)


def native(source: ConversionSource, wanted: KeyValueHeads, kept: KeptHeads) -> Home:
    """Raises CannotConvertError, and HeadCountError for a number that cannot be had."""
    refuse(source, NATIVE)
    heads, new, changes = native_heads(source, wanted, kept)
    keys = " and ".join(source.architecture.attention.key_value_keys)
    return Home(
        name="native",
        reason=f"its class reads {keys}",
        heads=heads,
        draft=lambda: _draft(source, heads),
        config=lambda: (new, changes),
    )


def _draft(source: ConversionSource, heads: HeadsByLayer) -> Draft:
    """One step per tensor of the output."""
    check_native_tensors(source, heads)
    check_native_layers(source)
    steps = {
        header.path.name: tuple(s for t in header.tensors for s in _steps(source, heads, t))
        for header in source.checkpoint.files
    }
    by_name = source.attention_map.by_name
    changed = [held for held in by_name.values() if _own(held, heads).is_changed]
    layers = {h.place.index for h in changed if h.is_projection and h.has_key_value}
    over_all = any(_is_over_all_heads(held) for held in changed)
    return Draft(steps=steps, layers=tuple(sorted(layers)), notes=(_NORM_NOTE,) if over_all else ())


def _own(held: HeadTensors, heads: HeadsByLayer) -> Heads:
    own = heads.of(held.place.index, cross=held.place.cross)
    assert own is not None
    return own


def _is_over_all_heads(held: HeadTensors) -> bool:
    """Whether it is a norm of all K heads of a token at once."""
    is_norm = held.place.part == "norm" and has_word(held.module, KEY_NORMS)
    if not is_norm or len(held.tensors) > 1:
        return False
    return any(block.heads > 1 and block.rows > 1 for block in held.blocks.blocks)


def _steps(source: ConversionSource, heads: HeadsByLayer, tensor: TensorInfo) -> Iterator[Step]:
    held = source.attention_map.by_name.get(tensor.name)
    own = None if held is None else _own(held, heads)
    if held is None or own is None or not own.is_changed:
        yield copy(tensor)
    elif len(held.tensors) > 1 and held.has_key_value:
        yield from pooled_list(held, own, tensor)
    elif held.has_key_value:
        target = held.blocks.regrouped(query_heads=own.padded_heads, key_value_heads=own.after)
        yield pooled(held, own, target)
    else:
        step = placed(held, own) if own.is_renumbered else copy(tensor)
        assert step is not None  # or it had been refused
        yield step
