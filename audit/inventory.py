"""What the stored tensors are: parameters and bytes by part of the model and by element type."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headcount.arch.tensors.names import TensorNames
from headcount.arch.tensors.places import find_part, numbered
from headcount.model.spec import ModelSpec
from headcount.sources.safetensors import TensorInfo

from .census import Census
from .packed import Packing

_WORD = re.compile(r"\w+")
_NORM = re.compile(r"ln(?:_\w+|\d)?|\w+_ln")
_PROJECTORS = (
    "projector",
    "_projection",
    "connector",
    "aligner",
    "resampler",
    "mm_",
    "embed_vision",
    "patch_merge",
    "mlp_ar.",
    "enc_to_dec_proj",
    "query_tokens",
)
_EMBEDDINGS = ("embed", "wte", "wpe", "shared.", "segment_emb")
_HEADS = frozenset(
    {
        *("lm_head", "lm_heads", "embed_out", "output_layer", "output", "unembed", "proj_out"),
        *("predictions", "generator_predictions", "generator_lm_head", "pred_layer", "lm_loss"),
        *("vocab_transform", "vocab_layer_norm", "vocab_projector", "head", "score", "classifier"),
        *("output_projection", "decoder.weight", "decoder.bias"),
    }
)
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

    def uncounted(self) -> "Inventory":
        """The same where nobody knows how many weights its tensors stand for."""
        by_part = (replace(line, parameters=None) for line in self.by_part)
        by_dtype = (replace(line, parameters=None) for line in self.by_dtype)
        return replace(self, by_part=tuple(by_part), by_dtype=tuple(by_dtype))

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
    census: Census,
    names: Mapping[str, TensorNames],
    spec: ModelSpec,
    *,
    copies: frozenset[str],
    buffers: frozenset[str],
    bits: int | None,
) -> Inventory:
    """Sorts `tensors` by names and shapes. `copies` and `buffers` are names that count for none."""
    packing, sorter = Packing(tensors, bits), _Sorter(census, names, spec)
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

    def __init__(self, census: Census, names: Mapping[str, TensorNames], spec: ModelSpec) -> None:
        self.stacks = census.stacks
        self.names = names
        self.mixers: dict[str, dict[int, str]] = {}
        for layer in spec.layers:
            kinds = {mixer.kind == "recurrent" for mixer in layer.mixers}
            of_stack = self.mixers.setdefault(layer.stored_in, {})
            of_stack.setdefault(layer.stored_as, _MIXERS[frozenset(kinds)])
        self.last = {stack: max(known) for stack, known in self.mixers.items()}
        # Layers of a kind are alike: each name in a layer is read once.
        self.seen: dict[tuple[str, str, str], str] = {}

    def part(self, name: str) -> str:
        at = numbered(name)
        stack = None if at is None else self.stacks.lists.get(at.prefix)
        if at is None or stack is None:
            return self._outside(name)
        known, index = self.mixers[stack], at.number
        if stack == "decoder" and index > self.last[stack]:
            return "mtp"
        mixers = known.get(index, "attention")
        key = (at.prefix, mixers, at.inside)
        if key not in self.seen:
            self.seen[key] = _inside(at.prefix, at.inside, self.names[stack], mixers)
        return self.seen[key]

    def _outside(self, name: str) -> str:
        words = name.lower()
        if any(word in words for word in _PROJECTORS):
            return "projector"
        tower = self.stacks.tower(name)
        if tower is not None:
            return tower
        if not _HEADS.isdisjoint(words.split(".")) or words in _HEADS:
            return "output head"
        if _is_norm(words):
            return "norms"
        return "embeddings" if any(word in words for word in _EMBEDDINGS) else "other"


# What mixes tokens in a layer, by whether its mixers are recurrent.
_MIXERS = {
    frozenset[bool](): "nothing",
    frozenset({False}): "attention",
    frozenset({True}): "recurrent",
    frozenset({False, True}): "both",
}
# All experts of a layer in one tensor: GraniteMoE, Step 3.7.
_STACKED = re.compile(r"(?<!shared_mlp)\.(?:in|out)put_linear|\.moe\.(?:gate|up|down)_proj")
_RECURRENT = re.compile(
    r"(?:^|\.)(?:mamba\d?|mixer|ssm|conv|short_conv|recurrent|linear_attn|temporal_block|mlstm_layer)\."
)
_ATTENTION = re.compile(r"(?:^|\.)(?:self_attn|attention)\.")
_ROUTER = re.compile(
    r"router|e_score|^gate\.|(?:^|\.)(?:mlp|moe|block_sparse_moe|ffn|feed_forward)\.gate\."
)


def _inside(prefix: str, inside: str, names: TensorNames, mixers: str) -> str:
    """The part of what stands behind a layer's number, in a layer of such `mixers`."""
    words = inside.lower()
    found = find_part(_as_weight(inside), names)
    if found is not None and found[2] != "" and mixers != "nothing":
        return "mixer" if mixers == "recurrent" else "attention"
    if mixers in ("recurrent", "both") and _RECURRENT.search(words):
        return "mixer"
    if mixers == "recurrent" and _ATTENTION.search(words):
        return "mixer"
    if "expert" in words:
        return "experts"
    words = f"{prefix.rpartition('.')[2]}.{words}"
    if _is_norm(words):
        return "norms"
    if _STACKED.search(words):
        return "experts"
    if _ROUTER.search(inside.lower()):
        return "router"
    return "mlp" if _MLP.search(words) else "other"


_MLP = re.compile(
    r"mlp|ffn|feed_forward|fc1|fc2|fc_in|fc_out|dense|intermediate|(?:^|\.)w[123]\."
    r"|gate_proj|up_proj|down_proj|c_fc|densereludense|channel_mix|(?:^|\.)ff\.|(?:^|\.)lin[12]\."
)


def _is_norm(words: str) -> bool:
    """Whether the module that a parameter belongs to is a norm, by its own name; a list of norms
    numbers them."""
    module = next((word for word in words.split(".")[-2::-1] if not word.isdigit()), "")
    is_word = _WORD.fullmatch(module) is not None
    return is_word and ("norm" in module or _NORM.fullmatch(module) is not None)


def _as_weight(name: str) -> str:
    """The name of the plain weight that a packed tensor stands for, which the architecture has."""
    head, found, _ = name.rpartition(".weight.")  # bitsandbytes: X.weight.absmax
    return f"{head}.weight" if found else name
