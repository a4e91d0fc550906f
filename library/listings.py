"""`headcount.models`, `families`, `convertibles`, `devices` and `rules`: what is known, in lists.

A terminal is shown an overview first, by what people look for; each row names a few.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from headcount.report.report import Column, Report, Table

from .result import Result, public
from .values import text

_NAMED = 3  # in a row of an overview
_ROWS = 12  # of an overview, or as many as a screen has room for


@dataclass(frozen=True, kw_only=True, eq=False)
class ListResult(Result):
    """What is known, in a list. `overview` is a table of it that fits on a screen."""

    overview: Table | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class CatalogueModel:
    """A model of the catalogue; `parameters` is None where they are not known."""

    id: str
    aliases: tuple[str, ...]
    model_type: str | None
    parameters: int | None
    auditable: bool


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelsResult(ListResult):
    """The catalogue, or what was found in it."""

    models: tuple[CatalogueModel, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ModelFamily:
    """A model type: how it mixes tokens, what turns on the biases of q, k, v and of o, the norm of
    q and k, the type of the nested language model that says the rest, and who describes it."""

    model_type: str
    mixers: tuple[str, ...]
    bias: str
    norm: str
    reads: str | None
    source: str


@dataclass(frozen=True, kw_only=True, eq=False)
class FamiliesResult(ListResult):
    """The model types that can be audited, or those that were looked for."""

    families: tuple[ModelFamily, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class ConvertibleFamily:
    """A model type that `convert` has a home for, which numbers of K/V heads that can hold, and
    which engines load it."""

    model_type: str
    home: str
    key_value_heads: str
    engines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class ConvertiblesResult(Result):
    """The model types that can be converted, and the names of those that can keep latents."""

    families: tuple[ConvertibleFamily, ...] = field(repr=False)
    latents: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class KnownDevice:
    """An accelerator, by the name that `plan` takes. Bytes, bytes a second and 16-bit FLOP/s; None
    where none is published."""

    key: str
    name: str
    vendor: str
    memory: int
    usable_memory: int
    bandwidth: int | None
    flops: int | None


@dataclass(frozen=True, kw_only=True, eq=False)
class DevicesResult(ListResult):
    """The accelerators that `plan` knows."""

    devices: tuple[KnownDevice, ...] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class AuditRule:
    """What `audit` looks for; `severity` is the worst that it reports."""

    code: str
    name: str
    severity: str
    reads: str
    says: str


@dataclass(frozen=True, kw_only=True, eq=False)
class RulesResult(ListResult):
    """All rules, by code."""

    rules: tuple[AuditRule, ...] = field(repr=False)


_MODELS = (
    Column(key="id", title="Model"),
    Column(key="aliases", title="Aliases", drop=1),
    Column(key="model_type", title="model_type"),
    Column(key="parameters", title="Parameters", unit="parameters"),
    Column(key="auditable", title="Audit"),
)


@public
def models(search: str | None = None) -> ModelsResult:
    """The models of the catalogue, which need no network; with `search` those with its words in a
    name or model_type. Raises HeadcountError."""
    from headcount.arch.registry import architecture_of
    from headcount.sources.catalogue import catalogue, search_catalogue

    wanted = "" if search is None else text("search", search)
    found = tuple(
        CatalogueModel(
            id=row.id,
            aliases=(*row.aliases, *row.checkpoints),
            model_type=row.model_type,
            parameters=row.parameters,
            auditable=row.model_type is not None and architecture_of(row.model_type) is not None,
        )
        for row in search_catalogue(wanted)
    )
    table = Table(key="models", title="Models", columns=_MODELS, rows=tuple(map(_model, found)))
    whose = _overview(
        ("By organisation", "Organisation"),
        found,
        lambda one: one.id.partition("/")[0],
        _shortest_name,
    )
    among = f"match {wanted!r}" if wanted else "in the catalogue"
    return ModelsResult(
        report=Report(
            title=f"{len(found)} of {len(catalogue())} models {among}",
            tables=(table,),
            notes=_of_models(wanted, found),
            document={"schema_version": 1, "models": table.documents()},
        ),
        overview=None if wanted else whose,
        models=found,
    )


def _of_models(wanted: str, found: Sequence[CatalogueModel]) -> tuple[str, ...]:
    from headcount.sources.catalogue import nearest

    if not wanted:
        return ("headcount models qwen3 8b finds some.",)
    near = () if found else nearest(wanted)
    return (f"Nearest are {', '.join(near)}.",) if near else ()


def _model(one: CatalogueModel) -> tuple[object, ...]:
    known = "yes" if one.auditable else "not yet"
    return (one.id, ", ".join(one.aliases), one.model_type, one.parameters, known)


def _shortest_name(one: CatalogueModel) -> str:
    return min(one.aliases or (one.id,), key=len)


_FAMILIES = (
    Column(key="model_type", title="model_type"),
    Column(key="mixers", title="Mixers"),
    Column(key="bias", title="Bias of q, k, v / o"),
    Column(key="norm", title="q/k norm"),
    Column(key="reads", title="Reads", drop=1),
    Column(key="source", title="From", drop=2),
)


@public
def families(search: str | None = None) -> FamiliesResult:
    """The model types that can be audited, and how each mixes tokens; with `search` those with this
    in their name. Raises HeadcountError."""
    from headcount.arch.described import described
    from headcount.arch.registry import ARCHITECTURES

    wanted = "" if search is None else text("search", search)
    names = [name for name in ARCHITECTURES if wanted.casefold() in name.casefold()]
    fields = ModelFamily.__dataclass_fields__
    found = tuple(
        ModelFamily(**{name: getattr(known, name) for name in fields})
        for known in map(described, names)
    )
    table = Table(
        key="families",
        title="Families",
        columns=_FAMILIES,
        rows=tuple(_row(one, _FAMILIES) for one in found),
    )
    mixers = _overview(
        ("By what mixes tokens", "Mixers"),
        found,
        lambda one: "; ".join(one.mixers),
        lambda one: one.model_type,
    )
    return FamiliesResult(
        report=Report(
            title=f"{len(found)} model types" + (f" with {wanted!r} in the name" if wanted else ""),
            tables=(table,),
            notes=(
                *(() if wanted else ("headcount families gemma finds some.",)),
                "Bias and norm: what the class always or never has, or the config key that"
                " decides.",
                "Reads: the type of the nested language model, which says the rest.",
            ),
            document={
                "schema_version": 1,
                "families": [{name: getattr(one, name) for name in fields} for one in found],
            },
        ),
        overview=None if wanted else mixers,
        families=found,
    )


@public
def convertibles() -> ConvertiblesResult:
    """The model types that `convert` has a home for (`headcount convert --families`)."""
    from headcount.convert.families import families_report

    report = families_report()
    document: Any = report.document
    return ConvertiblesResult(
        report=report,
        families=tuple(
            ConvertibleFamily(**{**one, "engines": tuple(one["engines"])})
            for one in document["families"]
        ),
        latents=tuple(document["latents"]),
    )


_DEVICES = (
    Column(key="key", title="Device"),
    Column(key="name", title="Name"),
    Column(key="per_card", title="On a card", unit="count", drop=1),
    Column(key="memory", title="Memory", unit="bytes"),
    Column(key="usable_memory", title="Usable", unit="bytes"),
    Column(key="bandwidth", title="Bandwidth", unit="bandwidth"),
    Column(key="flops", title="16-bit FLOP/s", unit="flops", drop=2),
)
_ONLY_JSON = ("vendor", "platform", "capability", "usable_source", "source", "aliases")


@public
def devices(search: str | None = None) -> DevicesResult:
    """The accelerators that `plan` knows, with usable memory and bandwidth; with `search` those
    with its words in a name or vendor. Raises HeadcountError."""
    from headcount.plan.devices import all_devices

    wanted = "" if search is None else text("search", search)
    known = [d for d in all_devices() if _has(wanted, d.key, d.name, d.vendor, *d.aliases)]
    fields = KnownDevice.__dataclass_fields__
    rows = tuple(_row(device, _DEVICES) for device in known)
    keys = (*(column.key for column in _DEVICES), *_ONLY_JSON)
    vendors = _overview(
        ("By vendor", "Vendor"),
        known,
        lambda one: one.vendor,
        lambda one: one.key,
        named=len(known),
    )
    return DevicesResult(
        report=Report(
            title=f"{len(known)} devices" + (f" match {wanted!r}" if wanted else ""),
            tables=(Table(key="devices", title="Devices", columns=_DEVICES, rows=rows),),
            notes=(
                "A device is what a framework sees as one, of which some cards have several; usable"
                " memory is what it sees of a fresh one. See docs/devices.md.",
            ),
            document={
                "schema_version": 1,
                "devices": [{key: getattr(device, key) for key in keys} for device in known],
            },
        ),
        overview=None if wanted else vendors,
        devices=tuple(
            KnownDevice(**{name: getattr(device, name) for name in fields}) for device in known
        ),
    )


_RULES = (
    Column(key="code", title="Code"),
    Column(key="name", title="Name"),
    Column(key="severity", title="Severity"),
    Column(key="reads", title="Reads", drop=1),
    Column(key="says", title="What it says"),
)


@public
def rules(search: str | None = None) -> RulesResult:
    """The rules of `audit`: codes, severities and what they read; with `search` those with its
    words in any of these. Raises HeadcountError."""
    from headcount.audit.rules.registry import BY_READING

    wanted = "" if search is None else text("search", search)
    known = (
        AuditRule(
            code=rule.code,
            name=rule.name,
            severity=rule.severity,
            reads=reads,
            says=(rule.check.__doc__ or "").rstrip("."),
        )
        for reads, those in BY_READING.items()
        for rule in those
    )
    found = sorted(
        (one for one in known if _has(wanted, one.code, one.name, one.reads, one.says)),
        key=lambda rule: rule.code,
    )
    rows = tuple(_row(rule, _RULES) for rule in found)
    table = Table(key="rules", title="Rules", columns=_RULES, rows=rows)
    return RulesResult(
        report=Report(
            title=f"{len(rows)} rules" + (f" match {wanted!r}" if wanted else ""),
            tables=(table,),
            notes=("docs/findings.md says why each matters and what to do.",),
            document={"schema_version": 1, "rules": table.documents()},
        ),
        overview=None
        if wanted
        else _overview(
            ("By what they read", "Reads"),
            found,
            lambda one: one.reads,
            lambda one: f"{one.code} {one.name}",
        ),
        rules=tuple(found),
    )


def _has(wanted: str, *texts: str) -> bool:
    """Whether every word of `wanted` stands in one of the texts, whatever the case."""
    held = " ".join(texts).casefold()
    return all(word in held for word in wanted.casefold().split())


def _row(one: object, columns: Iterable[Column]) -> tuple[object, ...]:
    return tuple(_cell(getattr(one, column.key)) for column in columns)


def _cell(value: object) -> object:
    return "; ".join(value) if isinstance(value, tuple | list) else value


def _overview(
    titles: tuple[str, str],
    found: Sequence[Any],
    group: Callable[[Any], str],
    name: Callable[[Any], str],
    named: int = _NAMED,
) -> Table:
    """How many there are of each group, the most first, and the names of the first. `titles` are
    those of the table and of its groups."""
    groups: dict[str, list[Any]] = {}
    for one in found:
        groups.setdefault(group(one), []).append(one)
    most_first = sorted(groups.items(), key=lambda item: -len(item[1]))
    return Table(
        key="overview",
        title=titles[0],
        columns=(
            Column("group", titles[1]),
            Column("count", "Number", "count"),
            Column("names", "Such as" if named == _NAMED else "Names"),
        ),
        rows=tuple(
            (group, len(those), ", ".join(map(name, those[:named]))) for group, those in most_first
        ),
        brief=_ROWS,
    )
