"""What the stored tensors are: parameters and bytes by part of the model and by element type."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .family.places import place, stack_of
from .family.row import Family
from .packed import Packing
from .source.safetensors import TensorInfo
from .spec import ModelSpec

_LAYER = re.compile(r"(?:^|\.)(\d{1,9})\.")
_NORM = re.compile(r"\w*norm\w*|ln(?:_\w+|\d)?")
_DIGITS = re.compile(r"\d+")
_TOWERS = ("vision", "audio", "mtp")
_PROJECTORS = (
    "projector",
    "_projection",
    "connector",
    "aligner",
    "resampler",
    "mm_",
    "embed_vision",
)
_EMBEDDINGS = ("embed", "wte", "wpe", "shared.")
_HEADS = ("lm_head", "embed_out", "output_layer", "output")
_ORDER = (
    *("attention", "mlp", "experts", "router", "mixer", "norms", "embeddings", "output head"),
    *("vision", "audio", "projector", "mtp", "other", "copies", "buffers"),
)

# Weights (None: unknown), stored elements and bytes of one tensor.
_Amount = tuple[int | None, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """A part of the model, or an element type. `parameters` are weights: codes count as what they
    stand for, scales, buffers and copies as none; None where a packing is unknown. `elements` are
    all that is stored."""

    name: str
    tensors: int
    parameters: int | None
    elements: int
    nbytes: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Inventory:
    """All stored tensors, once by part and once by dtype; `parts` maps each name to its part.
    `codes` are the names of packed weights, `bare` those without a scale beside them."""

    by_part: tuple[Line, ...]
    by_dtype: tuple[Line, ...]
    parts: Mapping[str, str]
    codes: tuple[str, ...]
    bare: tuple[str, ...]

    @property
    def parameters(self) -> int | None:
        """Weights of the whole checkpoint; None where a packing is unknown."""
        return add(line.parameters for line in self.by_part)

    @property
    def nbytes(self) -> int:
        return sum(line.nbytes for line in self.by_part)

    def part(self, name: str) -> int:
        """Parameters of one part; 0 where it is not there."""
        return sum(line.parameters or 0 for line in self.by_part if line.name == name)


def add(values: Iterable[int | None]) -> int | None:
    """The sum, or None if one of the values is unknown."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def take_inventory(
    tensors: Mapping[str, TensorInfo],
    family: Family,
    spec: ModelSpec,
    *,
    copies: frozenset[str],
    buffers: frozenset[str],
    bits: int | None,
) -> Inventory:
    """Sorts `tensors` by names and shapes. `copies` and `buffers` are names that count for none."""
    packing, sorter = Packing(tensors, bits), _Sorter(tensors, family, spec)
    rows: list[tuple[str, str, _Amount]] = []
    parts = {name: sorter.part(name) for name in tensors}
    parts |= dict.fromkeys(copies, "copies") | dict.fromkeys(buffers, "buffers")
    for name, tensor in tensors.items():
        idle = parts[name] in ("copies", "buffers")
        count = 0 if idle else packing.weights(tensor)
        rows.append((parts[name], tensor.dtype, (count, tensor.elements, tensor.nbytes)))
    codes = tuple(
        name
        for name, tensor in tensors.items()
        if parts[name] != "buffers" and packing.is_code(tensor)
    )
    return Inventory(
        by_part=_lines(((part, amount) for part, _, amount in rows), _ORDER),
        by_dtype=_lines(((dtype, amount) for _, dtype, amount in rows), ()),
        parts=parts,
        codes=codes,
        bare=tuple(name for name in codes if not packing.has_companion(name)),
    )


def _lines(rows: Iterable[tuple[str, _Amount]], order: tuple[str, ...]) -> tuple[Line, ...]:
    """One line per name: in `order`, or by bytes."""
    sums: dict[str, list[_Amount]] = {}
    for name, amount in rows:
        sums.setdefault(name, []).append(amount)
    lines = [
        Line(
            name=name,
            tensors=len(amounts),
            parameters=add(count for count, _, _ in amounts),
            elements=sum(elements for _, elements, _ in amounts),
            nbytes=sum(nbytes for _, _, nbytes in amounts),
        )
        for name, amounts in sums.items()
    ]
    by_order = {name: place for place, name in enumerate(order)}
    return tuple(sorted(lines, key=lambda line: (by_order.get(line.name, 0), -line.nbytes)))


class _Sorter:
    """The part of a tensor by its name; what the layers of the config do not reach is `mtp`."""

    def __init__(self, tensors: Mapping[str, TensorInfo], family: Family, spec: ModelSpec) -> None:
        self.names = family.names
        self.stacks = {layer.stack for layer in spec.layers}
        self.known = {
            stack: {layer.index for layer in spec.layers if layer.stack == stack}
            for stack in self.stacks
        }
        # Layers are alike: what a name means does not depend on its numbers.
        self.seen: dict[tuple[str, str], str] = {}

    def part(self, name: str) -> str:
        number = _LAYER.search(name)
        if number is None or any(word in name[: number.start()] for word in _PROJECTORS):
            return self._outside(name)
        stack, index = stack_of(name[: number.start()]), int(number[1])
        if stack in _TOWERS and stack not in self.stacks:
            return stack
        if stack == "decoder" and stack in self.known and index > max(self.known[stack]):
            return "mtp"
        inside = name[number.end() :]
        key = (name[: number.start()], _DIGITS.sub("0", inside))
        if key not in self.seen:
            self.seen[key] = self._inside(name, inside)
        return self.seen[key]

    def _outside(self, name: str) -> str:
        words = name.lower()
        stack = stack_of(words)
        if any(word in words for word in _PROJECTORS):
            return "projector"
        if stack in _TOWERS and stack not in self.stacks:
            return stack
        if any(part in _HEADS for part in words.split(".")):
            return "output head"
        if _is_norm(words):
            return "norms"
        return "embeddings" if any(word in words for word in _EMBEDDINGS) else "other"

    def _inside(self, name: str, inside: str) -> str:
        spot = place(_as_weight(name), self.names)
        if spot is not None and spot.part:
            return "attention"
        words = inside.lower()
        if "expert" in words:
            return "experts"
        if _is_norm(words):
            return "norms"
        if "input_linear" in words or "output_linear" in words:
            return "experts"  # all experts of a layer in one tensor (GraniteMoE)
        if (
            "router" in words
            or "e_score" in words
            or re.search(r"(?:^|\.)(?:mlp|moe|block_sparse_moe|ffn)\.gate\.", words)
        ):
            return "router"
        if re.search(r"attn|attention|crossattention", words.rpartition(".")[0]):
            return "mlp" if re.search(r"attention\.output\.dense", words) else "attention"
        if re.search(r"mamba|mixer|ssm|conv|recurrent|rglru|time_mix|linear_attn", words):
            return "mixer"
        return "mlp" if _MLP.search(words) else "other"


_MLP = re.compile(
    r"mlp|ffn|feed_forward|fc1|fc2|fc_in|fc_out|dense|intermediate|(?:^|\.)w[123]\."
    r"|gate_proj|up_proj|down_proj|c_fc|densereludense|channel_mix"
)


def _is_norm(words: str) -> bool:
    """Whether the module that a parameter belongs to is a norm, by its own name."""
    module = words.rpartition(".")[0].rpartition(".")[2]
    return _NORM.fullmatch(module) is not None


def _as_weight(name: str) -> str:
    """The name of the plain weight that a packed tensor stands for, for the row's names."""
    head, found, _ = name.rpartition(".weight.")  # bitsandbytes: X.weight.absmax
    return f"{head}.weight" if found else name
