"""Tensors that a home cannot place, and layers that are not complete.

A check looks at one tensor and gives a reason, or None. The first reason of a home's list for the
first tensor of the files is raised: whose the tensor is comes before what it is, and that before
its shape, its dtype, and what padding would do to it. Only then layers are looked at: a tensor of
an unknown name explains best why one seems to be missing.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass

from headcount.arch.tensors.names import BUFFERS, TensorNames
from headcount.arch.tensors.places import PLAIN_PARAMETERS, Place
from headcount.audit.packed import FLOATS
from headcount.sources.safetensors import TensorInfo

from ...attention_map.attention_tensors import AttentionTensors, HeadTensors
from ...attention_map.layouts import KEY_NORMS, PROJECTIONS, QUERY_NORMS, has_word
from ...attention_map.standing import Standing
from ..errors import CannotConvertError
from ..head_steps import placed
from ..heads import Heads, HeadsByLayer
from ..source import ConversionSource

# A word of a tensor's path in its layer that makes it look like attention.
_NEAR = re.compile(r"attn|attention|[qkv]_proj|qkv|query|key|value")
_FAR = re.compile(r"norm|mlp|expert|(^|[._])ln_")  # unless it is one of these


@dataclass(frozen=True, kw_only=True, slots=True)
class Examined:
    """A tensor, and all that is known of it: where it stands (None: in no list of layers), what it
    holds of an attention's heads, and these. `recurrent`: its layer has no attention. `twin` is a
    tensor before it in the same place."""

    tensor: TensorInfo
    names: TensorNames
    standing: Standing | None
    held: HeadTensors | None
    own: Heads | None
    recurrent: bool
    twin: str | None

    @property
    def inside(self) -> str:
        """Its path in its layer."""
        return "" if self.standing is None else self.standing.at.inside

    @property
    def place(self) -> Place | None:
        """Its place in an attention of the decoder."""
        is_decoder = self.standing is not None and self.standing.is_decoder
        return self.standing.place if self.standing and is_decoder and not self.recurrent else None

    @property
    def part(self) -> str | None:
        return None if self.place is None else self.place.part

    @property
    def is_key_value(self) -> bool:
        """Whether it is a projection of K or V heads, or its bias."""
        return self.part in PROJECTIONS and not {"k", "v"}.isdisjoint(self.part or "")

    @property
    def is_key_norm(self) -> bool:
        return self.part == "norm" and self.has_word(KEY_NORMS)

    @property
    def is_plain(self) -> bool:
        return self.place is not None and self.place.parameter in PLAIN_PARAMETERS

    def has_word(self, words: tuple[str, ...]) -> bool:
        return self.place is not None and has_word(self.place.module, words)


TensorCheck = Callable[[Examined], str | None]


def _lookalike(one: Examined) -> str | None:
    """A tensor of a layer, outside the known modules, whose name sounds like attention."""
    known = one.standing is None or one.standing.is_tower or one.standing.place is not None
    if known or one.recurrent or _FAR.search(one.inside) or not _NEAR.search(one.inside):
        return None
    buffer = any(one.inside.endswith("." + b) for b in BUFFERS - {"bias"})
    return None if buffer else "looks like attention but is not known"


def _stranger(one: Examined) -> str | None:
    """An attention of another model that is no tower."""
    standing = one.standing
    if standing is None or standing.is_tower or standing.is_decoder or standing.place is None:
        return None
    return f"belongs to {standing.owner}, which convert does not handle"


def _unknown(one: Examined) -> str | None:
    if one.place is None or (one.held is not None and one.own is not None):
        return None
    return "is not known in this architecture"


def _twin(one: Examined) -> str | None:
    held = one.place is not None and one.twin is not None
    return f"stands in the same place of a layer as {one.twin!r}" if held else None


def _adapted(one: Examined) -> str | None:
    bad = one.is_key_value and not one.is_plain
    return "looks quantised or adapted: not pooled" if bad else None


def _projection_shape(one: Examined) -> str | None:
    if not one.is_key_value or one.held is None or one.held.layout is None or one.held.fits:
        return None
    layout = one.held.layout
    along = "columns" if layout.axis else "rows"
    return f"has shape {list(one.tensor.shape)}; {layout.rows} {along} were expected"


def _beside_shape(one: Examined) -> str | None:
    beside = one.place is not None and one.place.module in one.names.key_value
    if not beside or one.held is None or one.held.layout is not None:
        return None
    return f"has shape {list(one.tensor.shape)}: no K/V heads"


def _key_norm(one: Examined) -> str | None:
    """By its shape: shared by all heads, over all heads, a row per head, or one of a list."""
    if not one.is_key_norm or one.held is None or one.own is None:
        return None
    held, own, layout = one.held, one.own, one.held.layout
    if not one.is_plain:
        whole = layout is not None and len(held.tensors) == own.before
        if whole and one.tensor.shape == (own.head_dim,) and not own.is_renumbered:
            return None
        return f"should be one of {own.before} norms of {own.head_dim}"
    if layout is None:
        return f"has shape {list(one.tensor.shape)}, which fits no k norm"
    if own.is_renumbered and any(block.rows > 1 for block in layout.blocks):
        what = "pruning" if own.is_pruned else "padding"
        hint = "" if own.is_pruned else ": choose a divisor"
        return f"is a norm over all heads, which {what} would change{hint}"
    return None


def _quantised(one: Examined) -> str | None:
    pooled = one.held is not None and one.held.has_key_value
    if not pooled or one.tensor.dtype in FLOATS:
        return None
    return f"({one.tensor.dtype}) looks quantised: not pooled"


def _not_named(one: Examined) -> str | None:
    """Only what the architecture names may go along."""
    if one.place is None or one.is_key_value or one.is_key_norm:
        return None
    if one.place.module in one.names.key_value:
        return None
    named = one.names.cross if one.place.cross else one.names.modules
    is_known = one.part != "norm" or one.has_word(QUERY_NORMS)
    plain = one.place.parameter.rpartition(".")[2] in PLAIN_PARAMETERS
    good = one.place.module in named and plain and is_known
    return None if good else "is not known well enough to be kept"


def _not_placed(one: Examined) -> str | None:
    if one.held is None or one.own is None or not one.own.is_renumbered or one.held.has_key_value:
        return None
    if placed(one.held, one.own) is not None:
        return None
    if one.own.is_pruned:
        return "would change with fewer query heads, or how they lie in it is not known"
    return (
        f"cannot be padded to the {one.own.padded_heads} query heads that {one.own.after} K/V heads"
        " need: choose a divisor"
    )


def _normed_together(one: Examined) -> str | None:
    """A class of ours sees zeros in place of heads that were pruned."""
    if one.own is None or not one.own.is_pruned or one.part != "norm" or one.held is None:
        return None
    whole = one.held.layout is None or any(b.rows > 1 for b in one.held.blocks.blocks)
    shared = whole and len(one.held.tensors) == 1
    return "is a norm over all heads, which pruning would change" if shared else None


def _not_plain(one: Examined) -> str | None:
    """A class of ours keeps what stands beside the projections, whatever it is called."""
    if one.place is None or one.place.parameter.rpartition(".")[2] in PLAIN_PARAMETERS:
        return None
    return "is not known in this architecture"


_EVERY: tuple[TensorCheck, ...] = (_lookalike, _stranger, _unknown)
_NATIVE: tuple[TensorCheck, ...] = (
    *(*_EVERY, _twin, _adapted, _projection_shape, _beside_shape, _key_norm, _quantised),
    *(_not_named, _not_placed),
)
_CUSTOM: tuple[TensorCheck, ...] = (
    *(*_EVERY, _adapted, _projection_shape, _quantised, _normed_together, _not_plain),
)


def check_native_tensors(source: ConversionSource, heads: HeadsByLayer) -> None:
    """Raises CannotConvertError naming the first tensor that is not known."""
    _check(source, heads, _NATIVE)


def check_custom_tensors(source: ConversionSource, heads: HeadsByLayer, dropped: Set[str]) -> None:
    """Raises CannotConvertError naming the first tensor that is not known, but for those that are
    `dropped`."""
    _check(source, heads, _CUSTOM, dropped)


def unknown_tensor(source: ConversionSource, tensor: TensorInfo, what: str) -> CannotConvertError:
    """A refusal because of one tensor."""
    return CannotConvertError(f"{source.folder / tensor.file}: tensor {tensor.name!r} {what}")


def _check(
    source: ConversionSource,
    heads: HeadsByLayer,
    checks: Iterable[TensorCheck],
    dropped: Set[str] = frozenset(),
) -> None:
    for one in _examined(source, heads):
        for check in checks if one.tensor.name not in dropped else ():
            reason = check(one)
            if reason is not None:
                raise unknown_tensor(source, one.tensor, reason)


def _examined(source: ConversionSource, heads: HeadsByLayer) -> Iterator[Examined]:
    found = source.attention_map
    stood: dict[tuple[int, bool, str, str], str] = {}
    for header in source.checkpoint.files:
        for tensor in header.tensors:
            standing = found.standings.get(tensor.name)
            place = None if standing is None else standing.place
            first = tensor.name
            if standing is not None and standing.is_decoder and place is not None:
                key = (place.index, place.cross, place.module, place.parameter)
                first = stood.setdefault(key, tensor.name)
            index = standing.at.number if standing and place is None else place and place.index
            yield Examined(
                tensor=tensor,
                names=source.architecture.names,
                standing=standing,
                held=found.by_name.get(tensor.name),
                own=None if place is None else heads.of(place.index, cross=place.cross),
                recurrent=standing is not None and standing.is_decoder and index in found.recurrent,
                twin=None if first == tensor.name else first,
            )


def check_native_layers(source: ConversionSource) -> None:
    """Raises CannotConvertError if an attention lacks k or v: one of the config's, or one that is
    stored beyond them and has the other."""
    found = source.attention_map
    beyond = {w: one for w, one in found.more.items() if w[0] not in found.readers and _held(one)}
    for where, one in sorted({**found.attentions, **beyond}.items()):
        mixer = found.mixers.get(where)
        for part in "k" if mixer is not None and not mixer.has_value else "kv":
            if part not in _held(one):
                raise CannotConvertError(
                    f"{source.folder}: layer {where[0]} has no {part} projection of a name that is"
                    " known: the checkpoint is incomplete or of another layout"
                )


def check_custom_layers(source: ConversionSource) -> None:
    """Raises CannotConvertError unless every attention of the decoder has one k and one v."""
    for (index, cross), one in sorted(source.attention_map.attentions.items()):
        if sorted(_held(one)) != ["k", "v"]:
            raise CannotConvertError(
                f"{source.folder}: decoder layer {index} has no k and v"
                f"{' of its cross-attention' if cross else ''} of a name that is known:"
                " the checkpoint is incomplete or of another layout"
            )


def _held(one: AttentionTensors) -> list[str]:
    """k and v, as often as a weight holds them."""
    weights = (held for held in one.projections if not held.is_bias)
    return [part for held in weights for part in held.parts if part in ("k", "v")]
