"""llama.cpp's mixes of types, such as Q4_K_M: which of them each tensor of a GGUF file has.

The rules are those of `llama_tensor_get_type` and `tensor_type_fallback` (src/llama-quant.cpp,
007dbbf) without an importance matrix, but for types that want one. Vectors, routers and small
convolutions are float32, as convert_hf_to_gguf.py writes them.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from headcount.arch.formats.format import Format
from headcount.arch.formats.scheme import Scheme
from headcount.arch.modules.module import Inventory, Module
from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import ModelSpec
from headcount.sources.ggml_types import GGML_TYPES

from .gguf_names import MIXES

_FLOATS = ("F16", "BF16", "F32")
# Those that cannot be made without an importance matrix.
_LOWEST = frozenset(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ2_M"))
_FALLBACKS = {
    **dict.fromkeys(("IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"), "IQ4_NL"),
    **dict.fromkeys(("IQ3_XXS", "IQ3_S", "IQ4_XS"), "IQ4_NL"),
    **dict.fromkeys(("Q2_K", "Q3_K", "TQ1_0", "TQ2_0"), "Q4_0"),
    **{"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"},
}
_V_LIKE = ("v", "qkv", "kv_b")


@dataclass(kw_only=True, slots=True)
class _Model:
    """What the rules ask of a model, and how many tensors of a kind came by."""

    family: str
    experts: int
    group_size: int
    layers: int
    values: int
    is_tied: bool
    is_70b: bool
    seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def next(self, kind: str, layer: int | None) -> int:
        """The number of a tensor among its kind: that of its layer where experts stand in it."""
        number = self.seen[kind]
        self.seen[kind] += 1
        return number if self.experts <= 1 or layer is None else layer


def gguf_scheme(mix: str, inventory: Inventory, spec: ModelSpec) -> Scheme:
    """The scheme of a mix by its name, for an inventory that `as_gguf` made."""
    kinds = _types(mix, inventory, spec)
    return Scheme(
        name=mix, choose=lambda module, names: _block_format(kinds.get(module.name)), wide_bits=32
    )


def as_gguf(inventory: Inventory, spec: ModelSpec) -> Inventory:
    """The matrices that a GGUF file has: the way up from a latent as one for keys and one for
    values, no layers that predict, and no towers, which lie in a file of their own (mmproj)."""
    language = (module for module in inventory.modules if module.kind != "tower")
    modules = tuple(part for module in language for part in _cut(module, spec))
    return replace(inventory, modules=modules, prediction=(), prediction_others=0)


def _cut(module: Module, spec: ModelSpec) -> Iterator[Module]:
    latent = next((m for m in _mixers(spec) if isinstance(m, LatentAttention)), None)
    if module.part != "kv_b" or latent is None:
        yield module
        return
    heads, rank = latent.num_attention_heads, module.columns
    nope, values = latent.qk_nope_head_dim, latent.v_head_dim
    yield module._replace(name=f"{module.name}.k", part="k_b", rows=heads * rank, columns=nope)
    yield module._replace(name=f"{module.name}.v", part="v_b", rows=heads * values)


def _mixers(spec: ModelSpec) -> Iterator[Mixer]:
    return (mixer for layer in spec.layers for mixer in layer.mixers)


def _block_format(name: str | None) -> Format | None:
    """A type as codes of whole bits, and the rest of a block for its scales."""
    if name is None or name == "F32":
        return None
    elements, nbytes = _BLOCKS[name]
    bits = 8 * nbytes // elements
    rest = 8 * nbytes - bits * elements
    return Format(name=name, bits=bits, group=elements, scale_bits=rest)


_BLOCKS = {name: (elements, nbytes) for name, elements, nbytes in GGML_TYPES.values()}


def _types(mix: str, inventory: Inventory, spec: ModelSpec) -> dict[str, str | None]:
    """The type of each matrix by its name; None: float32, as routers have it."""
    modules = sorted(
        inventory.modules, key=lambda module: -1 if module.layer is None else module.layer
    )
    layers = len(spec.layers)
    attention = next((m for m in _mixers(spec) if isinstance(m, Attention)), None)
    group_size = attention.group_size if attention else 1
    model = _Model(
        family=spec.model_type,
        experts=max((m.copies for m in modules if m.kind == "experts"), default=0),
        group_size=group_size,
        layers=layers,
        values=sum(module.part in _V_LIKE for module in modules if module.layer is not None),
        is_tied=not any(module.kind == "head" for module in modules),
        is_70b=spec.model_type in _WITH_70B and layers == 80 and group_size > 1,
    )
    return {module.name: _type(mix, module, model) for module in modules}


# Types of which llama.cpp calls a model of 80 layers a 70B (LLM_TYPE_70B).
_WITH_70B = ("llama", "qwen2", "olmo", "nemotron-nas")


def _type(mix: str, module: Module, model: _Model) -> str | None:
    if module.kind == "router":
        return None
    default = MIXES[mix]
    if mix in _FLOATS:
        return default
    return _fitting(_wanted(mix, default, module, model), module)


def _fitting(name: str, module: Module) -> str:
    """A type that the width of a row allows."""
    if module.columns % _elements(name) == 0:
        return name
    other = _FALLBACKS.get(name, "F16")
    return other if module.columns % _elements(other) == 0 else "F16"


def _elements(name: str) -> int:
    return _BLOCKS[name][0]


def _wanted(mix: str, default: str, module: Module, model: _Model) -> str:
    if module.kind == "head" or (module.kind == "embedding" and model.is_tied):
        return _of_head(mix, default, module, model)
    if mix == "MXFP4_MOE":
        return "MXFP4" if module.kind == "experts" else "Q8_0"
    if module.kind == "embedding":
        return _of_embedding(mix, default)
    rule = _RULES.get(module.part)
    if rule is None or (module.kind == "recurrent" and module.part != "qkv"):
        return default
    return rule(mix, default, module, model)


def _of_head(mix: str, default: str, module: Module, model: _Model) -> str:
    if mix == "MXFP4_MOE" or model.family == "falcon" or module.columns % _elements(default):
        return "Q8_0"
    if mix in _LOWEST or mix == "IQ3_XXS":
        return "Q5_K"
    return default if default == "Q8_0" else "Q6_K"


def _of_embedding(mix: str, default: str) -> str:
    if mix in ("IQ2_XXS", "IQ2_XS", "IQ1_S", "IQ1_M"):
        return "Q2_K"
    if mix in ("IQ2_S", "IQ2_M", "IQ3_XXS"):
        return "IQ3_S"
    return "Q4_K" if mix in ("TQ1_0", "TQ2_0") else default


def _more_bits(number: int, count: int) -> bool:
    """The first and the last eighth of the layers, and every third between."""
    first = count // 8
    return number < first or number >= 7 * count // 8 or (number - first) % 3 == 2


def _of_values(mix: str, default: str, module: Module, model: _Model) -> str:
    number, grouped = model.next("v", None), model.group_size >= 4
    if mix in _LOWEST:
        if grouped or model.experts >= 4:
            return "Q4_K"
        return "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K"
    found = default
    if mix in ("Q2_K", "IQ3_XXS"):
        found = "Q4_K" if grouped else "Q3_K" if mix == "Q2_K" else "IQ3_S"
    elif (mix in ("Q2_K_S", "IQ3_XS", "IQ3_S") and grouped) or mix == "IQ3_M":
        found = "Q4_K"
    elif mix == "Q3_K_M":
        found = "Q5_K" if number < 2 else "Q4_K"
    elif mix == "Q3_K_L" or (mix in ("IQ4_NL", "IQ4_XS") and grouped):
        found = "Q5_K"
    elif mix in ("Q4_K_M", "Q5_K_M") and _more_bits(number, model.values):
        found = "Q6_K"
    elif mix == "Q4_K_S" and number < 4:
        found = "Q5_K"
    if model.is_70b and found in ("Q3_K", "Q4_K"):
        found = "Q5_K"
    return "Q8_0" if model.experts == 8 else found


def _of_keys(mix: str, default: str, module: Module, model: _Model) -> str:
    if model.experts == 8:
        return "Q4_K" if mix in _LOWEST else "Q8_0"
    return _of_queries(mix, default, module, model)


def _of_queries(mix: str, default: str, module: Module, model: _Model) -> str:
    return {"IQ3_XS": "IQ3_XXS", "IQ3_XXS": "IQ2_S"}.get(mix, default)


def _of_outputs(mix: str, default: str, module: Module, model: _Model) -> str:
    if mix in _LOWEST:
        if model.experts == 8:
            return "Q5_K"
        if mix in ("IQ1_S", "IQ1_M"):
            return "IQ2_XXS"
        return "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else default
    if model.family == "falcon":
        return "Q4_K" if mix == "Q3_K_L" else default
    if model.experts == 8:
        return "Q5_K" if mix in _OUTPUTS_OF_8_EXPERTS else default
    return _OUTPUTS.get(mix, default)


_OUTPUTS = {
    **{"Q2_K": "Q3_K", "IQ3_XXS": "IQ3_S", "Q3_K_M": "Q4_K", "Q3_K_L": "Q5_K", "IQ3_M": "Q4_K"},
}
_OUTPUTS_OF_8_EXPERTS = frozenset(
    (
        *("Q2_K", "IQ3_XS", "IQ3_XXS", "Q3_K_S", "Q3_K_M", "IQ4_NL"),
        *("Q4_K_S", "Q4_K_M", "IQ3_S", "IQ3_M", "IQ4_XS"),
    )
)


def _of_down(mix: str, default: str, module: Module, model: _Model) -> str:
    number, count = model.next("down", module.layer), model.layers
    eighth, falcon = number < count // 8, model.family == "falcon"
    if mix in _LOWEST:
        if model.seen["down"] - 1 < count // 8:
            return "IQ3_S" if mix in ("IQ2_S", "IQ2_M") else "Q2_K"
        return default
    if mix == "Q2_K":
        return "Q3_K"
    if mix == "IQ3_XXS":
        return "Q4_K" if eighth else "Q3_K"
    if mix == "Q3_K_M":
        if number < count // 16:
            return "Q5_K"
        return "Q4_K" if not falcon or _more_bits(number, count) else "Q3_K"
    if mix == "IQ3_M":
        more = model.experts == 8 and _more_bits(number, count)
        return "Q4_K" if eighth or more else default
    if mix == "Q3_K_L":
        return "Q4_K" if falcon else "Q5_K"
    if mix == "Q4_K_M" and falcon:
        first = number < count // 16
        return "Q6_K" if first else "Q5_K" if _more_bits(number, count) else "Q4_K"
    if mix in ("Q4_K_M", "Q5_K_M"):
        return "Q6_K" if _more_bits(number, count) else default
    if mix == "Q2_K_S":
        return "Q4_K" if eighth else default
    if mix in ("IQ4_NL", "IQ4_XS") or (mix == "Q4_K_S" and not falcon):
        return "Q5_K" if eighth else default
    return default


def _of_gate_and_up(mix: str, default: str, module: Module, model: _Model) -> str:
    number, count = model.next(module.part, module.layer), model.layers
    is_inner = count // 8 <= number < 7 * count // 8
    return "IQ3_XXS" if mix == "IQ3_XS" and is_inner else default


_RULES = {
    **dict.fromkeys(_V_LIKE, _of_values),
    **{"k": _of_keys, "q": _of_queries, "o": _of_outputs, "down": _of_down},
    **dict.fromkeys(("gate", "up"), _of_gate_and_up),
}
