"""What a row of the family table says, in words: for people who ask what can be audited."""

from dataclasses import dataclass

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Mixer

from .class_defaults import class_defaults
from .kinds import all_full, by_window
from .row import Family
from .table import FAMILIES

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
    """`mixers` are those of a model with the class's defaults, and windows if the row knows them.
    `bias` names what turns on the biases of q, k and v, and of o. `reads` is the type of the nested
    language model, whose row holds then."""

    model_type: str
    mixers: tuple[str, ...]
    bias: str
    norm: str
    reads: str | None
    source: str


def described(model_type: str) -> Described:
    """The row of `model_type`, which must exist."""
    family = FAMILIES[model_type]
    reads, text = _language_model(model_type, family)
    known = class_defaults(family.same_as or model_type)
    return Described(
        model_type=model_type,
        mixers=_mixers(model_type, text),
        bias=f"{_switch(text.qkv_bias)} / {_switch(text.o_bias)}",
        norm=_norm(text),
        reads=reads,
        source=f"transformers {known.class_name}" if known else "remote code",
    )


def _language_model(model_type: str, family: Family) -> tuple[str | None, Family]:
    if family.text is None:
        return None, family
    known = class_defaults(model_type)
    defaults = {**(known.defaults if known else {}), **family.defaults}
    nested = (defaults.get(family.text) or {}).get("model_type")
    if not isinstance(nested, str) or nested not in FAMILIES:
        return None, family
    inner = FAMILIES[nested]
    deeper, row = _language_model(nested, inner)
    return deeper or nested, row


def _mixers(model_type: str, text: Family) -> tuple[str, ...]:
    from .resolve import read_config

    found = dict.fromkeys(
        ["attention, windowed"] if text.kinds not in (all_full, by_window) else []
    )
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


def _norm(family: Family) -> str:
    norm = family.norm if isinstance(family.norm, str) else "by the config"
    return norm if family.norm_if is True else f"{norm} if {family.norm_if}"
