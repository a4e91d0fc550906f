"""Which types can be converted, where the result lives, and which engines load it: from the tables.

A type's own class is asked in the way of a conversion: its config gets one K/V head, and is read
again. What changes is what the class can hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from typing import Any

from headcount.arch.architecture import Architecture, Conversion
from headcount.arch.class_defaults import class_defaults
from headcount.arch.latent_home import keeps_latents
from headcount.arch.read_config import read_config
from headcount.arch.registry import ARCHITECTURES, architecture_of
from headcount.arch.rehoming import rehome_of
from headcount.model.decoder_attentions import attentions
from headcount.model.errors import HeadcountError
from headcount.report.report import Column, Report, Table

from .engines import engines
from .homes.native_config import ConfigEditor, language_model
from .plan.refusals.types import ignores_count

_COLUMNS = (
    Column(key="model_type", title="model_type"),
    Column(key="home", title="Home"),
    Column(key="key_value_heads", title="K/V heads"),
    Column(key="latents", title="Latents"),
    Column(key="engines", title="Loaded by"),
)
# For classes whose defaults do not go together.
_SIZES: tuple[Mapping[str, Any], ...] = (
    {},
    {"head_dim": 128},
    {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4},
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Convertible:
    """A type with a home for its result. `key_value_heads` says which counts it can hold."""

    model_type: str
    home: str
    key_value_heads: str
    engines: tuple[str, ...]


def convertible() -> tuple[Convertible, ...]:
    """Every type of `arch/` that convert has a home for, by name."""
    return tuple(sorted(_found(), key=lambda row: row.model_type))


def with_latents() -> tuple[str, ...]:
    """Every type of `arch/` whose models can keep latents, by name."""
    return tuple(sorted(filter(_keeps_latents, ARCHITECTURES)))


def families_report() -> Report:
    """The table of `headcount convert --families`."""
    found, latents = convertible(), with_latents()
    keys = ("model_type", "home", "key_value_heads", "engines")
    return Report(
        title=f"{len({row.model_type for row in found})} model types can be converted",
        tables=(
            Table(
                key="families",
                title="Families",
                columns=_COLUMNS,
                rows=tuple(sorted(_rows(found, latents), key=lambda row: str(row[0]))),
            ),
        ),
        notes=(
            "native: the class that it has can hold fewer K/V heads. rehome: another class"
            " computes the same function. custom: a modelling file of ours that lies beside the"
            " weights and is loaded with trust_remote_code=True; by layer: for numbers that differ"
            " between layers.",
            f"Latents: --latent makes them of {len(latents)} model types; transformers loads them"
            " by a modelling file of ours.",
        ),
        document={
            "schema_version": 1,
            "families": [{key: getattr(f, key) for key in keys} for f in found],
            "latents": list(latents),
        },
    )


def _rows(found: Iterable[Convertible], latents: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """One a home; a type that has none for fewer heads, but keeps latents, has a row, too."""
    for f in found:
        kept = "yes" if f.model_type in latents else None
        yield f.model_type, f.home, f.key_value_heads, kept, ", ".join(f.engines)
    for name in set(latents) - {f.model_type for f in found}:
        yield name, None, None, "yes", "transformers"


def _found() -> Iterator[Convertible]:
    for model_type, known in ARCHITECTURES.items():
        limits = known.conversion
        if _is_native(model_type, known):
            yield Convertible(
                model_type=model_type,
                home="native",
                key_value_heads=_counts(limits),
                engines=tuple(engines(model_type)),
            )
        for row in map(rehome_of, known.rehomes):
            yield Convertible(
                model_type=model_type,
                home=f"rehome: {row.target}",
                key_value_heads="divisors" if row.only is None else str(row.only),
                engines=tuple(engines(row.target)),
            )
        ignores = ignores_count(model_type)
        if ignores or limits.by_layer:
            yield Convertible(
                model_type=model_type,
                home="custom",
                key_value_heads="divisors" if ignores else "by layer",
                engines=("transformers",),
            )


def _keeps_latents(model_type: str) -> bool:
    config = _example(model_type)
    try:
        return config is not None and keeps_latents(model_type, read_config(config, model_type))
    except HeadcountError:
        return False


def _counts(limits: Conversion) -> str:
    if limits.even_only:
        return "even divisors"
    return "divisors" if limits.only is None else str(limits.only)


def _is_native(model_type: str, known: Architecture) -> bool:
    """Whether the class of this type makes fewer K/V heads of a smaller number in its config."""
    config = _example(model_type)
    if config is None or not known.names.modules:
        return False
    try:
        editor = ConfigEditor(config, model_type)
        inner = editor.architecture
        if known.conversion.refused or inner.conversion.refused or not inner.names.modules:
            return False
        editor.set_heads(2 if known.conversion.even_only else 1)
        after = attentions(ConfigEditor(editor.new, model_type).reading.spec)
    except HeadcountError:
        return False
    before = attentions(editor.reading.spec)
    return any(
        after[at].num_key_value_heads < mixer.num_key_value_heads for at, mixer in before.items()
    )


@cache
def _example(model_type: str) -> dict[str, Any] | None:
    """A config with K/V heads for all query heads, or half of them, in sizes that can be read."""
    plain = _plain(model_type)
    if plain is None:
        return None
    for sizes in _SIZES:
        sized = deepcopy(plain)
        try:
            language_model(sized, model_type)[0].update(sizes)
            editor = ConfigEditor(sized, model_type)
            mixers = attentions(editor.reading.spec)
        except HeadcountError:
            continue
        heads = max((mixer.num_attention_heads for mixer in mixers.values()), default=0)
        for count in (heads, heads // 2):
            filled = _filled(editor, count)
            if count and filled is not None:
                return filled
    return plain


def _plain(model_type: str) -> dict[str, Any] | None:
    """The least config that its class can read; None for a type without a class."""
    known, found = class_defaults(model_type), architecture_of(model_type)
    if known is None or found is None:
        return None
    config: dict[str, Any] = {"model_type": model_type, **found.conversion.variant}
    text = found.config.text
    if text is not None:
        nested = (known.defaults.get(text) or {}).get("model_type")
        inner = _plain(nested) if isinstance(nested, str) else None
        return None if inner is None else {**config, text: inner}
    keys = found.attention.key_value_keys
    for outer in {name.partition(".")[0] for name in keys if "." in name}:
        config[outer] = dict(known.defaults.get(outer) or {})
    return config


def _filled(editor: ConfigEditor, count: int) -> dict[str, Any] | None:
    """The editor's config with `count` K/V heads, if it can be read; a flag stays as it is."""
    config = deepcopy(editor.new)
    holder, _ = language_model(config, editor.where)
    *outer, last = editor.architecture.attention.key_value_keys[0].split(".")
    place = holder[outer[0]] if outer else holder
    if not isinstance(place.get(last), bool):
        place[last] = count
    try:
        return config if attentions(read_config(config, editor.where).spec) else None
    except HeadcountError:
        return None
