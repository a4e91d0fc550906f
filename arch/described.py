"""What an architecture says, in words: for people who ask what can be audited."""

from dataclasses import dataclass

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Mixer

from .architecture import Architecture
from .attention.shape import AttentionShape
from .class_defaults import class_defaults
from .read_config import read_config
from .registry import architecture_of

# Sizes for types whose class transformers does not have, and which have no defaults therefore.
_ANY_SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "block_configs": [{"attention": {"n_heads_in_group": 2}}] * 2,
    "kv_lora_rank": 8,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Described:
    """`mixers` are those of a model with the class's defaults, and windows if the type knows them.
    `bias` names what turns on the biases of q, k and v, and of o. `reads` is the type of the nested
    language model, which is described then."""

    model_type: str
    mixers: tuple[str, ...]
    bias: str
    norm: str
    reads: str | None
    source: str


def described(model_type: str) -> Described:
    """The architecture of `model_type`, which must exist."""
    whole = _known(model_type)
    reads, text = _language_model(model_type, whole)
    known = class_defaults(whole.config.read_as or model_type)
    return Described(
        model_type=model_type,
        mixers=_mixers(model_type, text.attention),
        bias=f"{_switch(text.attention.qkv_bias)} / {_switch(text.attention.o_bias)}",
        norm=_norm(text.attention),
        reads=reads,
        source=f"transformers {known.class_name}" if known else "remote code",
    )


def _known(model_type: str) -> Architecture:
    found = architecture_of(model_type)
    assert found is not None
    return found


def _language_model(model_type: str, whole: Architecture) -> tuple[str | None, Architecture]:
    key = whole.config.text
    if key is None:
        return None, whole
    known = class_defaults(model_type)
    defaults = {**(known.defaults if known else {}), **whole.config.defaults}
    nested = (defaults.get(key) or {}).get("model_type")
    inner = architecture_of(nested) if isinstance(nested, str) else None
    if inner is None or not isinstance(nested, str):
        return None, whole
    deeper, found = _language_model(nested, inner)
    return deeper or nested, found


def _mixers(model_type: str, shape: AttentionShape) -> tuple[str, ...]:
    found = dict.fromkeys(["attention, windowed"] if shape.kinds not in ("full", None) else [])
    for sizes in ({}, _ANY_SIZES):
        try:
            layers = read_config({"model_type": model_type, **sizes}, model_type).spec.layers
        except HeadcountError:
            continue
        names = dict.fromkeys(_name(mixer) for layer in layers for mixer in layer.mixers)
        return tuple(sorted({**names, **found})) or ("no attention",)
    return tuple(sorted({"attention": None, **found}))


def _name(mixer: Mixer) -> str:
    kind = mixer.kind.replace("_attention", " attention")
    if mixer.window is not None:
        return f"{kind}, windowed"
    return kind if mixer.state_elements(1, 1) else f"{kind}, no cache"


def _switch(value: bool | str) -> str:
    if isinstance(value, bool):
        return "always" if value else "never"
    return f"not {value[1:]}" if value.startswith("!") else value


def _norm(shape: AttentionShape) -> str:
    norm = shape.norm if isinstance(shape.norm, str) else "by the config"
    return norm if shape.norm_if is True else f"{norm} if {shape.norm_if}"
