"""Which part of which layer a tensor is, judged by its name on disk and the row's TensorNames."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .names import BUFFERS, TensorNames

_LEADING_NUMBER = re.compile(r"(?:^|\.)(\d{1,5})\.", re.ASCII)
# A word in front of a number that counts no layers: the steps of a projector.
_NO_LAYERS = ("proj", "adapter", "merger")
# Words in front of the layer number that mark a tower other than the language model.
_TOWERS = ("vision", "visual", "audio", "image", "vpm", "embed_audio", "mtp")
# The same, where they stand for a tower as a whole part of a path only.
_TOWER_PARTS = frozenset({"vit", "sam_model", "qwen2_model", "perceiver_resampler"})
_ENCODERS = frozenset({"encoder", "text_encoder"})
# A stored tensor of a packed weight ends in none of these.
PLAIN = frozenset({"weight", "bias"})
_DECODER = "transformer.encoder."  # ChatGLM's decoder has this name
# What stands in front of a layer's number in GGUF files of several stacks.
_GGUF_STACKS = {"enc.blk": "encoder", "v.blk": "vision", "a.blk": "audio"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Tensor `parameter` (weight, bias, qweight…) of `module` in layer `index` of `stack`.

    `part` is q, k, v, o, a fused spelling such as qkv, norm or other; "" for a known module that no
    part counts (BERT's output norm); None for an unknown one under an attention module.
    """

    stack: str
    index: int
    module: str
    parameter: str
    part: str | None
    cross: bool = False


def place(name: str, names: TensorNames) -> Place | None:
    """The place of tensor `name`; None if it stands in no layer, or outside its attention."""
    number = _LEADING_NUMBER.search(name)
    if number is None:
        return None
    prefix, inside = name[: number.start()], name[number.end() :]
    stack = stack_of(prefix)
    module, _, parameter = inside.rpartition(".")
    for cross, table in ((False, names.modules), (True, names.cross)):
        found = _lookup(module, parameter, table)
        if found is not None:
            module, parameter, part = found
            return Place(
                stack=stack,
                index=int(number[1]),
                module=module,
                parameter=parameter,
                part=part,
                cross=cross,
            )
    return _stranger(stack, int(number[1]), inside, names)


def _lookup(module: str, parameter: str, table: Mapping[str, str]) -> tuple[str, str, str] | None:
    """The module's part. A parameter without a module of its own (`sinks`) and a numbered list
    (`q_layernorm.norms.3`) are looked up by their path."""
    if module in table:
        return module, parameter, table[module]
    whole = f"{module}.{parameter}"
    if whole in table:
        return whole, "weight", table[whole]
    parent, _, last = module.rpartition(".")
    if last.isdigit() and parent in table:
        return parent, f"{last}.{parameter}", table[parent]
    return None


def _stranger(stack: str, index: int, inside: str, names: TensorNames) -> Place | None:
    for near in names.near:
        if inside.startswith(near) and inside.removeprefix(near) not in BUFFERS:
            module, _, parameter = inside.rpartition(".")
            part = names.rest
            return Place(stack=stack, index=index, module=module, parameter=parameter, part=part)
    return None


def stack_of(prefix: str) -> str:
    """`encoder`, `decoder`, or the tower, from the words in front of a layer's number."""
    words = prefix.lower()
    if words in _GGUF_STACKS:
        return _GGUF_STACKS[words]
    for tower in _TOWERS:
        if tower in words:
            return "vision" if tower in ("visual", "image", "vpm") else tower
    parts = words.split(".")
    if _TOWER_PARTS.intersection(parts):
        return "vision"
    if _ENCODERS.intersection(parts) and not words.startswith(_DECODER):
        return "text" if "text_model" in words else "encoder"
    return "decoder"


def layer_indices(names: Iterable[str]) -> dict[str, set[int]]:
    """For each stack the layer numbers that stand in tensor names."""
    found: dict[str, set[int]] = {}
    for name in names:
        number = _LEADING_NUMBER.search(name)
        prefix = "" if number is None else name[: number.start()]
        if number is not None and not any(word in prefix for word in _NO_LAYERS):
            found.setdefault(stack_of(name[: number.start()]), set()).add(int(number[1]))
    return found
