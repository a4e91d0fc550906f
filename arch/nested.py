"""A config by the architecture of its type, and the configs of other types that it nests."""

from collections.abc import Mapping
from typing import Any

from headcount.model.errors import InvalidConfigError, UnsupportedModelError, short

from .architecture import Architecture
from .built_classes import class_name, type_by_class, type_of_class
from .class_defaults import ClassDefaults, class_defaults
from .config_view import ConfigView, Names, joined
from .foreign_classes import foreign_class
from .our_types import base_type, is_grouped, is_latent
from .registry import architecture_of, is_known, standard_spelling
from .size_names import CONTEXT_NAMES, EITHER_WIDTH, NAMES

_CONTEXT = "max_position_embeddings"
# The sizes that every config of a language model gives.
CORE = ("hidden_size", "num_hidden_layers", "num_attention_heads")


def find_architecture(model_type: str, where: str, config: Mapping[str, Any]) -> Architecture:
    """The architecture of `model_type`, or one that is assumed by the keys of `config`.

    Raises UnsupportedModelError naming the type: for one that is assumed it names the key that
    stands in the way, too."""
    base = base_type(model_type)
    found = architecture_of(base)
    if found is not None and is_latent(model_type):
        from .low_rank import low_rank

        return low_rank(found, base)
    if found is not None and base != model_type:
        from .grouped import grouped

        return grouped(found, base)
    if found is not None:
        return found
    if class_defaults(model_type) is not None:  # its class says more than the names do
        raise unsupported(model_type, where)
    from .assumed import assumed

    return assumed(model_type, config, where)


def unsupported(model_type: str, where: str) -> UnsupportedModelError:
    """Says which of its nested configs can be audited: of many such models, the language model."""
    known = class_defaults(model_type)
    nested_types = {
        key: inner.get("model_type")
        for key, inner in (known.defaults if known else {}).items()
        if isinstance(inner, dict)
    }
    parts = [key for key, name in nested_types.items() if isinstance(name, str) and is_known(name)]
    cure = f"audit its {' or '.join(parts)} as a config.json of its own; " if parts else ""
    class_name = f" ({known.class_name})" if known else ""
    return UnsupportedModelError(
        f"{where}: model_type {model_type!r} is not described here, though transformers has a class"
        f" for it{class_name}: {cure}`headcount families` lists what can be audited"
    )


def own_type(config: Mapping[str, Any], where: str) -> str | None:
    """The model_type that `config` gives, None where it is missing or empty. Raises
    InvalidConfigError for one that is no text."""
    given = config.get("model_type")
    if given is not None and not isinstance(given, str):
        raise InvalidConfigError(f"{where}: model_type is {short(given)}; a string is expected")
    return given or None


def of_named_class(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """`config`, or of one that nests several models that of the model whose class `architectures`
    names (`CLIPTextModel` of a whole CLIP), as the class's own loading takes it."""
    model_type, of_class = config.get("model_type"), type_of_class(class_name(config))
    if not isinstance(model_type, str) or of_class in (None, standard_spelling(model_type)):
        return config
    known = class_defaults(model_type)
    for key, default in (known.defaults if known else {}).items():
        given = config.get(key)
        if not (isinstance(given, dict) and isinstance(default, dict)):
            continue
        if of_class == (given.get("model_type") or default.get("model_type")):
            outer = {name: config[name] for name in _OF_THE_WHOLE if name in config}
            named = {"architectures": config["architectures"], "model_type": of_class}
            return {**outer, **given, **named}
    return config


_OF_THE_WHOLE = ("dtype", "torch_dtype", "id2label", "num_labels", "quantization_config")


def config_view(
    config: Mapping[str, Any], model_type: str, architecture: Architecture, where: str
) -> ConfigView:
    """`config` read by its class's names and defaults."""
    keys = architecture.config
    known = class_defaults(keys.read_as or standard_spelling(model_type))
    older = {key: f"{key}_dict" for key in keys.replaced if config.get(f"{key}_dict") is not None}
    view = ConfigView(
        _with_older(config, older),
        where=where,
        class_name=known.class_name if known else f"{model_type} (remote code)",
        defaults={**(known.defaults if known else {}), **keys.defaults},
        attribute_map=_attribute_map(known.attribute_map if known else {}, model_type),
        aliases=joined({**_aliases(known), **keys.aliases}, other_names(config, known)),
        overriding={**_own_first(known), **keys.overriding},
        model_type=model_type,
    )
    view.unused = keys.unused
    view.told = {key: (where, name) for key, name in older.items()}
    return view


def _with_older(config: Mapping[str, Any], older: Mapping[str, str]) -> Mapping[str, Any]:
    """`config` with the nested config `name` under each `key` that it is taken for."""
    rest = {key: value for key, value in config.items() if key not in older.values()}
    return {**rest, **{key: config[name] for key, name in older.items()}} if older else config


def _own_first(known: ClassDefaults | None) -> Names:
    return {name: (known.attribute_map[name],) for name in known.own_first} if known else {}


def _aliases(known: ClassDefaults | None) -> Names:
    """Names that older files have. A class with a context length of its own reads no other."""
    dtype = {"dtype": ("torch_dtype",)}
    own = known.attribute_map.get(_CONTEXT, _CONTEXT) if known else _CONTEXT
    if known is not None and known.defaults.get(own) is not None:
        return dtype
    return {_CONTEXT: CONTEXT_NAMES, **dtype}


def other_names(config: Mapping[str, Any], known: ClassDefaults | None) -> Names:
    """Names of sizes that a class does not read, for a file that gives none of the usual ones, or
    only one, which the class and the other tool that wrote the file call alike (`n_head` of GPT-2).
    Empty for any other file."""
    if known is None:
        return {}
    own = {key: known.attribute_map.get(key, key) for key in NAMES}
    usual = [key for key in CORE if key in config or own[key] in config]
    widths = ("intermediate_size", *NAMES["intermediate_size"])
    names = {**NAMES, **dict.fromkeys(widths, widths)}
    if any(name in config for name in widths):  # else it may be the width of the MLP itself
        names["hidden_size"] = (*NAMES["hidden_size"], *EITHER_WIDTH)
    given = [key for key in CORE if key in usual or any(name in config for name in names[key])]
    if len(usual) > 1 or len(given) < len(CORE):
        return {}
    return {**{own[key]: names[key] for key in own}, **names}


def _attribute_map(known: Mapping[str, str], model_type: str) -> Mapping[str, str]:
    """The class's other names, but for a count of K/V heads that our own modelling file reads."""
    if not is_grouped(model_type):
        return known
    return {name: key for name, key in known.items() if name != "num_key_value_heads"}


def nested(view: ConfigView, key: str, *, fills: bool = False) -> tuple[ConfigView, Architecture]:
    """The nested config `key` of `view`, read by the architecture of its own model_type.

    Older files keep the text model's keys at the top (Qwen2-VL). A config that is there takes its
    own class's defaults; one that is missing takes those of the wrapper, and so does what one
    leaves out where the wrapper `fills` it (Voxtral).
    """
    nested_defaults = view.defaults.get(key) or {}
    view.opened.add(key)
    given = view.config.get(key)
    if given is not None and not isinstance(given, dict):
        raise InvalidConfigError(f"{view.where}: {key} must be an object, not {given!r}")
    own = "hidden_size" in view.defaults  # PaliGemma's own is that of its projector
    flat = given is None and view.config.get("hidden_size") is not None and not own
    config = view.config if flat else (given or {})
    inner_type = own_type(given or {}, f"{view.where}: {key}")
    inner_type = inner_type or nested_defaults.get("model_type")
    inner_type = inner_type or type_by_class(given or {})
    if not isinstance(inner_type, str) and not is_known(view.model_type):
        inner_type = view.model_type  # a stranger's language model is a stranger
    if not isinstance(inner_type, str):
        raise InvalidConfigError(f"{view.where}: {key} has no model_type")
    foreign = foreign_class(given or {}, inner_type)
    inner_type = (foreign and foreign.other) or inner_type
    place = view.where if flat else f"{view.where}: {key}"
    architecture = find_architecture(inner_type, place, config)
    keys = architecture.config
    inner = config_view(config, inner_type, architecture, place)
    if given is None and not flat:
        inner.defaults = {**nested_defaults, **keys.defaults}
        inner.class_name = f"{view.class_name}: {key}"
    elif fills:
        inner.defaults = {**inner.defaults, **nested_defaults}
        inner.filled = dict.fromkeys(nested_defaults, f"{view.class_name}: {key}")
    inner.origins = view.origins
    if keys.text is not None:
        return nested(inner, keys.text, fills=keys.fills_text)
    return inner, architecture
