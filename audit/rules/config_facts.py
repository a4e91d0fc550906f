"""What rules on a config alone see: typed, whatever a stranger wrote in the JSON."""

from collections.abc import Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple

from headcount.arch.built_classes import class_name, type_of_class
from headcount.arch.class_defaults import class_defaults
from headcount.arch.config_view import ConfigView
from headcount.arch.foreign_classes import ForeignClass
from headcount.arch.formats.of_configs import scheme_of
from headcount.arch.formats.scheme import UnknownFormatError
from headcount.arch.nested import CORE, other_names
from headcount.arch.our_types import base_type, is_grouped, is_latent, is_ours
from headcount.arch.read_config import Reading
from headcount.arch.registry import architecture_of
from headcount.arch.size_names import NAMES, names_of, one_head_key
from headcount.arch.unread.unread_sizes import UnreadSize, unread_models, unread_sizes
from headcount.model.errors import InvalidConfigError
from headcount.model.numbers import finite, whole
from headcount.model.spec import ModelSpec

# Keys that ask transformers for an implementation of a part of the model.
_IMPLEMENTATION = ("attn_implementation", "experts_implementation", "attn_impl")
_TOKENS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")
# What `headcount convert` lays beside some models.
_GROUPED_MODULE = "modeling_headcount.py"
_LATENT_MODULE = "modeling_headcount_latent.py"
_FACTORED_MODULE = "headcount_factored.py"
OWN_MODULES = frozenset({_GROUPED_MODULE, _LATENT_MODULE, _FACTORED_MODULE})
# Widths of the feed-forward, and what counts the layers of a tower or says how wide they are.
_WIDTHS = ("intermediate_size", *NAMES["intermediate_size"])
# ChatGLM's number counts only where its flag is set.
_KEY_VALUE_HEADS = tuple(
    name for name in names_of("num_key_value_heads") if name != "multi_query_group_num"
)
_QUANTISATION = ("quantization_config", "compression_config", "quantization")


class Rope(NamedTuple):
    """One rescaling of positions; `holder` is the key it stands under. None: not given."""

    holder: str
    kind: str
    factor: float | None
    original: int | None


class Quantisation(NamedTuple):
    """`key` is where the settings stand, `method` their quant_method or "", `bits` per code,
    `blocks` the rows and columns that share a scale, where the settings say it. `unknown` says what
    of them is not understood, so that no bytes follow from them."""

    key: str
    method: str
    bits: int | None
    blocks: tuple[int, int] | None
    unknown: str | None


class Ignored(NamedTuple):
    """A size that `class_name` does not read, in the nested object `place`, or "" at the top."""

    place: str
    class_name: str
    size: UnreadSize


class ConfigFacts(NamedTuple):
    """A config as rules see it. `where` names it in messages, `id` the model in reports. `spec` is
    as the config says, and `stored` as the weights beside it have it, the same without any.

    Paths are dotted. `key_value_heads`: what the file says under each name of their number, and
    `one_head_key` the key that says there is one, where none gives a number; `window`, `pattern`
    and `layer_types` likewise, used by the class or not.
    `own_code`: the code that it names is the file that `headcount convert` writes, unchanged.
    `token_ids` are all that the file gives, lists taken apart, and `tokens` how many there are,
    None where there is more than one vocabulary. `defaulted` are sizes that are those of the class,
    `class_name`, in a file of one model; `renamed` keys of sizes that the class does not read, and
    `ignored` those that a class takes from its own keys or defaults. `marked` are the JSON files
    that begin with a byte-order mark. `unread` are nested objects with sizes that were not looked
    at (`with_unread`). `foreign` is a class in `architectures` that is none of the type.
    """

    where: str
    id: str
    spec: ModelSpec
    stored: ModelSpec
    in_transformers: bool
    own_code: bool
    nested: bool
    key_value_heads: Mapping[str, int]
    one_head_key: str | None
    window: int | None
    pattern: int | None
    layer_types: tuple[str, ...]
    ropes: tuple[Rope, ...]
    remote_code: tuple[str, ...]
    trusts: tuple[str, ...]
    implementations: tuple[tuple[str, str], ...]
    token_ids: tuple[tuple[str, int], ...]
    tokens: int | None
    quantisation: Quantisation | None
    vision: bool
    class_name: str
    defaulted: tuple[str, ...]
    renamed: tuple[str, ...]
    ignored: tuple[Ignored, ...]
    marked: tuple[str, ...]
    foreign: ForeignClass | None = None
    unread: tuple[str, ...] = ()


def config_facts(
    reading: Reading, config: Mapping[str, Any], where: str, id: str, marked: tuple[str, ...] = ()
) -> ConfigFacts:
    """The facts of a config that was read. Never raises: what is not as expected is not a fact."""
    text = copy(reading.text)
    text.origins = {}  # looking is not using: `--explain` lists what was used
    remote, trusts, implementations = _walk(config)
    types = text.get("layer_types")
    return ConfigFacts(
        where=where,
        id=id,
        spec=reading.spec,
        stored=reading.spec,
        in_transformers=_in_transformers(reading.spec.model_type, config),
        own_code=_is_own_code(reading.spec.model_type, config, where),
        nested=reading.text is not reading.view,
        key_value_heads=_key_value_heads(text, reading.spec.model_type),
        one_head_key=one_head_key(text.config),
        window=whole(text.config.get("sliding_window")),
        pattern=whole(text.get("sliding_window_pattern")),
        layer_types=tuple(types) if _is_names(types) else (),
        ropes=tuple(_ropes(text)),
        remote_code=remote,
        trusts=trusts,
        implementations=implementations,
        token_ids=tuple(token_ids({**config, **text.config})),
        tokens=_tokens(reading),
        quantisation=_quantisation(config, text.config),
        vision=isinstance(config.get("vision_config"), dict),
        class_name=text.class_name,
        defaulted=() if reading.nests else tuple(_defaulted(text)),
        renamed=tuple(_renamed(text)),
        ignored=tuple(_ignored(reading)),
        marked=marked,
        foreign=reading.foreign,
    )


def with_unread(facts: ConfigFacts, reading: Reading) -> ConfigFacts:
    """`facts` after a total was counted from the config: what it did not look at is known then."""
    return facts._replace(unread=unread_models(reading.view, reading.text))


def _defaulted(text: ConfigView) -> Iterator[str]:
    """None for a file of a type alone: it asks for the class's defaults."""
    if text.config.keys() <= {"model_type", "architectures", "dtype", "torch_dtype"}:
        return
    widths = (name for name in _WIDTHS if text.defaults.get(name) is not None)
    for name in (*CORE, "vocab_size", *widths):
        text.get(name)
        origin = text.origins.get(name)
        if origin is not None and origin.source.startswith("class default"):
            yield name


def _tokens(reading: Reading) -> int | None:
    """Rows of the embedding for ids of tokens."""
    size, stored = reading.spec.vocab_size, reading.architecture.stored
    return None if size is None or stored.several_vocabularies else size + stored.more_rows


def _renamed(text: ConfigView) -> Iterator[str]:
    """The keys of the file that `other_names` let the sizes be read by."""
    for key in CORE if other_names(text.config, class_defaults(text.model_type)) else ():
        own = text.attribute_map.get(key, key)
        if key in text.config or own in text.config:
            continue
        name = next(name for name in text.aliases[key] if name in text.config)
        if text.config[name] != text.defaults.get(own):
            yield name


def _ignored(reading: Reading) -> Iterator[Ignored]:
    """Of the whole, of the language model and of each other model that is nested beside it."""
    whole, text = reading.view, reading.text
    seen = [view.config for view in (whole, text)]
    others = (_of_class(whole, key) for key, inner in whole.config.items() if inner not in seen)
    for view in (whole, *((text,) if text is not whole else ()), *filter(None, others)):
        place = view.where.removeprefix(whole.where).removeprefix(": ")
        found = unread_sizes(view, nested=reading.nests)
        yield from (Ignored(place, view.class_name, one) for one in found)


def _of_class(whole: ConfigView, key: str) -> ConfigView | None:
    """The nested object `key` by the class of its model_type; None where it has none."""
    inner, default = whole.config[key], whole.defaults.get(key)
    types = (one.get("model_type") for one in (inner, default) if isinstance(one, dict))
    named = next((name for name in types if isinstance(name, str)), None)
    known = class_defaults(named) if named is not None and isinstance(inner, dict) else None
    if known is None or named is None:
        return None
    return ConfigView(
        inner,
        where=f"{whole.where}: {key}",
        class_name=known.class_name,
        defaults=known.defaults,
        attribute_map=known.attribute_map,
        aliases=_names_in(whole, key),
        model_type=named,
    )


def _names_in(whole: ConfigView, key: str) -> Mapping[str, tuple[str, ...]]:
    """The names by which the towers of the nested object `key` are read, by size."""
    found = architecture_of(base_type(whole.model_type))
    parts = getattr(found.body, "parts", ()) if found is not None else ()  # of a Wrapper
    towers = (tower for part in parts if part.key == key for tower in part.towers)
    return {size: (own,) for tower in towers for size, own in tower.names.items()}


def _is_own_code(model_type: str, config: Mapping[str, Any], where: str) -> bool:
    if not is_ours(model_type):
        return False
    from headcount.arch.grouped import is_own_code

    folder = Path(where).parent
    grouped = folder / _GROUPED_MODULE
    if is_latent(model_type):
        return is_own_code(config, folder / _LATENT_MODULE, grouped, folder / _FACTORED_MODULE)
    return is_own_code(config, grouped)


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _key_value_heads(text: ConfigView, model_type: str) -> dict[str, int]:
    if is_grouped(model_type) and text.config.get("num_key_value_heads_per_layer"):
        return {}  # the list decides; the one number is what the class is built with
    inner = text.config.get("attn_config")
    ours = is_grouped(model_type)  # other names are what the class is built with
    names = ("num_key_value_heads",) if ours else _KEY_VALUE_HEADS
    given = {name: text.config.get(name) for name in names}
    if isinstance(inner, dict) and not ours:
        given["attn_config.kv_n_heads"] = inner.get("kv_n_heads")
    found = ((key, whole(value)) for key, value in given.items())
    return {key: value for key, value in found if value is not None}


def _ropes(text: ConfigView) -> Iterator[Rope]:
    """`rope_scaling` or `rope_parameters`, which may nest one object per kind of layer."""
    for key in ("rope_scaling", "rope_parameters"):
        holder = text.config.get(key)
        if not isinstance(holder, dict):
            continue
        for value in (holder, *holder.values()):
            if isinstance(value, dict):
                kind = value.get("rope_type", value.get("type"))
                if isinstance(kind, str) and kind not in ("default", "mrope", "proportional"):
                    yield Rope(
                        holder=key,
                        kind=kind,
                        factor=finite(value.get("factor")),
                        original=whole(value.get("original_max_position_embeddings")),
                    )


def token_ids(config: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """(key, id) of every special token that `config` names by number."""
    for key in _TOKENS:
        value = config.get(key)
        for item in value if isinstance(value, list) else (value,):
            number = whole(item)
            if number is not None:
                yield key, number


def _in_transformers(model_type: str, config: Mapping[str, Any]) -> bool:
    """Whether transformers has the type, and the class that `architectures` names, if any."""
    named = class_name(config)
    return class_defaults(model_type) is not None and (not named or bool(type_of_class(named)))


def _quantisation(*configs: Mapping[str, Any]) -> Quantisation | None:
    for config in configs:
        for key in _QUANTISATION:
            settings = config.get(key)
            if isinstance(settings, dict) and settings:
                method = settings.get("quant_method")
                return Quantisation(
                    key=key,
                    method=method if isinstance(method, str) else "",
                    bits=_bits(settings),
                    blocks=_blocks(settings.get("weight_block_size")),
                    unknown=_unknown({**config, key: settings}),
                )
    return None


def _unknown(config: Mapping[str, Any]) -> str | None:
    try:
        scheme_of(config)
    except UnknownFormatError as error:
        return error.what
    except InvalidConfigError as error:
        return str(error)
    return None


def _bits(settings: Mapping[str, Any]) -> int | None:
    """Bits of one code: at the top, in the first group of compressed-tensors, or as HQQ has it."""
    groups = settings.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) and groups else None
    weights = first.get("weights") if isinstance(first, dict) else None
    inner = weights.get("num_bits") if isinstance(weights, dict) else None
    given = settings.get("quant_config")
    hqq = given.get("weight_quant_params") if isinstance(given, dict) else None
    inner = hqq.get("nbits") if isinstance(hqq, dict) else inner
    bits = whole(settings.get("bits", inner))
    return bits if bits is not None and 1 <= bits <= 16 else None


def _blocks(value: Any) -> tuple[int, int] | None:
    sizes = [whole(size) for size in value] if isinstance(value, list) and len(value) == 2 else []
    rows, columns = sizes if sizes else (None, None)
    return (rows, columns) if rows and columns and rows > 0 and columns > 0 else None


def _walk(
    config: Mapping[str, Any],
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Paths of code that the config asks for, at any depth: auto_map entries by which an auto class
    goes, trust_remote_code, and implementations by name. Iterative: a hostile file nests deeply."""
    remote: list[str] = []
    trusts: list[str] = []
    implementations: list[tuple[str, str]] = []
    open_objects: list[tuple[str, Mapping[str, Any]]] = [("", config)]
    while open_objects:
        prefix, holder = open_objects.pop()
        for key, value in holder.items():
            path = f"{prefix}{key}"
            if key == "auto_map" and isinstance(value, dict):
                remote += [f"{path}.{name}" for name in value if name.startswith("Auto")]
            elif key == "trust_remote_code" and value is True:
                trusts.append(path)
            elif isinstance(value, str) and key.endswith((*_IMPLEMENTATION, "_internal")):
                implementations.append((path, value))
            elif isinstance(value, dict):
                open_objects.append((f"{path}.", value))
    return tuple(remote), tuple(trusts), tuple(implementations)
