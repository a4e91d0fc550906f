"""Which part of which layer a tensor is, judged by its name on disk and the row's TensorNames."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .names import BUFFERS, TensorNames

LEADING_NUMBER = re.compile(r"(?:^|\.)(\d{1,9})\.", re.ASCII)
# A word in front of a number that counts no layers: the steps of a projector.
_NO_LAYERS = ("proj", "adapter", "merger", "embed_tokens", "lm_heads")
# Words in front of the layer number that mark a tower other than the language model.
_TOWERS: dict[str, str] = {
    **dict.fromkeys(("vision", "visual", "image", "vpm", "vit", "vqmodel"), "vision"),
    **dict.fromkeys(("sam_model", "video_tower", "generation_"), "vision"),
    **dict.fromkeys(("audio", "acoustic", "speech_encoder", "perception"), "audio"),
    "mtp": "mtp",
}
_TOWER = re.compile(r"(?<![a-z])vit(?![a-z])|" + "|".join(w for w in _TOWERS if w != "vit"))
# A stored tensor of a packed weight ends in none of these.
PLAIN = frozenset({"weight", "bias"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Tensor `parameter` (weight, bias, qweight…) of `module` in layer `index` of `stack`.

    `part` is q, k, v, o, a fused spelling such as qkv, norm or other; "" for a known module that no
    part counts (BERT's output norm); None for an unknown one under an attention module. `nth` is
    the number inside the layer of an attention of several.
    """

    stack: str
    index: int
    module: str
    parameter: str
    part: str | None
    cross: bool = False
    nth: int = 0


def place(name: str, names: TensorNames, stacks: Mapping[str, str] | None = None) -> Place | None:
    """The place of tensor `name`; None if it stands in no layer, or outside its attention.

    `stacks` says which stack a list of layers is, by what stands in front of the number; without
    it that is guessed from the words there.
    """
    number = LEADING_NUMBER.search(name)
    if number is None:
        return None
    prefix, inside = name[: number.start()], name[number.end() :]
    stack = stack_of(prefix) if stacks is None else stacks.get(prefix)
    found = None if stack is None else find_part(inside, names)
    if stack is None or found is None:
        return None
    module, parameter, part, cross, nth = found
    return Place(
        stack=stack,
        index=int(number[1]),
        module=module,
        parameter=parameter,
        part=part,
        cross=cross,
        nth=nth,
    )


Found = tuple[str, str, str | None, bool, int]


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
    if module in table:
        return module, parameter, table[module]
    whole = f"{module}.{parameter}"
    if whole in table:
        return whole, _kind(whole, table[whole]), table[whole]
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


def prefix_of(name: str) -> str | None:
    """What stands in front of a layer's number; None for a tensor of no layer."""
    number = LEADING_NUMBER.search(name)
    return None if number is None else name[: number.start()]


def tower_of(prefix: str) -> str | None:
    """The tower that the words in front of a layer's number name, if they do."""
    found = _TOWER.search(prefix.lower())
    return None if found is None else _TOWERS[found[0]]


def stack_of(prefix: str) -> str:
    """`encoder`, `decoder`, or the tower, from the words in front of a layer's number."""
    words = prefix.lower()
    tower = tower_of(words)
    if tower is not None:
        return tower
    if "text_model" in words:
        return "text"
    parts = words.split(".")
    return "encoder" if "encoder" in parts else "decoder"


def counts_layers(prefix: str) -> bool:
    """Whether the numbers behind `prefix` may be those of layers."""
    return not any(word in prefix for word in _NO_LAYERS)


def layer_indices(names: Iterable[str], stacks: Mapping[str, str]) -> dict[str, frozenset[int]]:
    """For each stack the layer numbers that stand in tensor names."""
    found: dict[str, set[int]] = {}
    for name in names:
        number = LEADING_NUMBER.search(name)
        if number is not None and name[: number.start()] in stacks:
            found.setdefault(stacks[name[: number.start()]], set()).add(int(number[1]))
    return {stack: frozenset(numbers) for stack, numbers in found.items()}
