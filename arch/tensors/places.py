"""Which part of which layer a tensor is, judged by its name on disk and the type's TensorNames."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from .names import BUFFERS, TensorNames

LEADING_NUMBER = re.compile(r"(?:^|\.)(\d{1,9})\.", re.ASCII)
# A word in front of a number that counts no layers: the steps of a projector.
_NO_LAYERS = ("proj", "adapter", "merger", "embed_tokens", "lm_heads")
# Words in front of the layer number that mark a tower other than the language model.
_TOWERS: dict[str, str] = {
    **dict.fromkeys(("vision", "visual", "image", "vpm", "vit", "vqmodel"), "vision"),
    **dict.fromkeys(("sam_model", "video_tower", "generation_"), "vision"),
    **dict.fromkeys(("qwen2_model", "perceiver_resampler"), "vision"),
    **dict.fromkeys(("audio", "acoustic", "speech_encoder", "perception"), "audio"),
    # SeamlessM4T's text to units of speech, and the word times of Nemotron 3.5 Transcribe
    **dict.fromkeys(("t2u_model", "word_timestamp"), "audio"),
    "mtp": "mtp",
}
_TOWER = re.compile(r"(?<![a-z])vit(?![a-z])|" + "|".join(w for w in _TOWERS if w != "vit"))
# A stored tensor of a packed weight ends in none of these.
PLAIN_PARAMETERS = frozenset({"weight", "bias"})
# What stands in front of a layer's number in GGUF files of several stacks.
GGUF_STACKS = {"enc.blk": "encoder", "v.blk": "vision", "a.blk": "audio"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Tensor `parameter` (weight, bias, qweight…) of `module` in layer `index` of a stack.

    `part` is q, k, v, o, a fused spelling such as qkv, norm or other; "" for a known module that no
    part counts (BERT's output norm); None for an unknown one under an attention module. `nth` is
    the number inside the layer of an attention of several.
    """

    index: int
    module: str
    parameter: str
    part: str | None
    cross: bool = False
    nth: int = 0


class Numbered(NamedTuple):
    """The name of a tensor in a numbered list: what stands in front of the number, and behind."""

    prefix: str
    number: int
    inside: str


def numbered(name: str) -> Numbered | None:
    """`name` cut at its first number; None for a tensor of no list."""
    found = LEADING_NUMBER.search(name)
    if found is None:
        return None
    return Numbered(name[: found.start()], int(found[1]), name[found.end() :])


Found = tuple[str, str, str | None, bool, int]


def place_of(found: Found, index: int) -> Place:
    """What `find_part` found, in layer `index`."""
    module, parameter, part, cross, nth = found
    return Place(index=index, module=module, parameter=parameter, part=part, cross=cross, nth=nth)


def find_part(inside: str, names: TensorNames) -> Found | None:
    """(module, parameter, part, whether of the cross-attention, which of several attentions) for
    what stands behind a layer's number; None for a tensor outside attention."""
    module, _, parameter = inside.rpartition(".")
    for cross, table in ((False, names.modules), (True, names.cross)):
        found = _lookup(module, parameter, table)
        if found is not None:
            return *found, cross, 0
        if names.numbered and (inner := _INNER_NUMBER.search(inside)) is not None:
            general = f"{inside[: inner.start(1)]}#{inside[inner.end(1) :]}"
            module, _, parameter = general.rpartition(".")
            found = _lookup(module, parameter, table)
            if found is not None:
                return *found, cross, int(inner[1])
    return _stranger(inside, names)


_INNER_NUMBER = re.compile(r"\.(\d{1,5})\.", re.ASCII)


def _lookup(module: str, parameter: str, table: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The module's part. A parameter without a module of its own (`sinks`) and a numbered list
    (`q_layernorm.norms.3`) are looked up by their path."""
    whole = f"{module}.{parameter}"
    if whole in table:
        return whole, _kind(whole, table[whole]), table[whole]
    if module in table:
        return module, parameter, table[module]
    parent, _, last = module.rpartition(".")
    if last.isdigit() and parent in table:
        return parent, f"{last}.{parameter}", table[parent]
    return None


def _kind(path: str, part: str) -> str:
    """What a parameter without a module is: DeBERTa's q_bias is a bias, a bias by distance not."""
    return "bias" if path.endswith("_bias") and part != "other" else "weight"


def _stranger(inside: str, names: TensorNames) -> Found | None:
    general = _INNER_NUMBER.sub(".#.", inside, count=1) if names.numbered else inside
    for near in names.near:
        if general.startswith(near) and general.removeprefix(near) not in BUFFERS:
            module, _, parameter = inside.rpartition(".")
            return module, parameter, names.rest, near in names.near_cross, 0
    return None


def tower_of(prefix: str) -> str | None:
    """The tower that the words in front of a layer's number name, if they do."""
    found = _TOWER.search(prefix.lower())
    return None if found is None else _TOWERS[found[0]]


def counts_layers(prefix: str) -> bool:
    """Whether the numbers behind `prefix` may be those of layers."""
    return not any(word in prefix for word in _NO_LAYERS)
