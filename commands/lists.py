"""What the package ships, as reports: the catalogue, the family table and the devices."""

from headcount.arch.registry import ARCHITECTURES
from headcount.plan.devices import Device, all_devices
from headcount.report.report import Column, Report, Table
from headcount.sources.catalogue import CatalogueRow, catalogue, search

_MODEL_COLUMNS = (
    Column(key="id", title="Model"),
    Column(key="aliases", title="Aliases"),
    Column(key="model_type", title="model_type"),
    Column(key="parameters", title="Parameters", unit="parameters"),
    Column(key="auditable", title="Audit"),
)
_FAMILY_COLUMNS = (
    Column(key="model_type", title="model_type"),
    Column(key="mixers", title="Mixers"),
    Column(key="bias", title="Bias of q, k, v / o"),
    Column(key="norm", title="q/k norm"),
    Column(key="reads", title="Reads"),
    Column(key="source", title="From"),
)
_DEVICE_COLUMNS = (
    Column(key="key", title="Device"),
    Column(key="name", title="Name"),
    Column(key="memory", title="Memory", unit="bytes"),
    Column(key="usable_memory", title="Usable", unit="bytes"),
    Column(key="bandwidth", title="Bandwidth", unit="bandwidth"),
    Column(key="flops", title="16-bit FLOP/s", unit="flops"),
)


def models_report(text: str = "") -> Report:
    """The catalogue, or what `text` finds in it."""
    rows = search(text)
    table = Table(
        key="models",
        title="Models",
        columns=_MODEL_COLUMNS,
        rows=tuple(_model_row(row) for row in rows),
    )
    return Report(
        title=f"{len(rows)} of {len(catalogue())} models"
        + (f" match {text!r}" if text else " in the catalogue"),
        tables=(table,),
        document={
            "schema_version": 1,
            "models": [
                dict(zip((c.key for c in _MODEL_COLUMNS), r, strict=True)) for r in table.rows
            ],
        },
    )


def _model_row(row: CatalogueRow) -> tuple[object, ...]:
    auditable = "yes" if row.model_type in ARCHITECTURES else "not yet"
    return (row.id, ", ".join(row.aliases), row.model_type, row.parameters, auditable)


def families_report(text: str = "") -> Report:
    """Every model_type that can be audited, or those with `text` in their name."""
    from headcount.arch.described import described

    names = [name for name in ARCHITECTURES if text.casefold() in name.casefold()]
    found = [described(name) for name in names]
    keys = [column.key for column in _FAMILY_COLUMNS]
    table = Table(
        key="families",
        title="Families",
        columns=_FAMILY_COLUMNS,
        rows=tuple(
            tuple("; ".join(v) if key == "mixers" else v for key in keys for v in [getattr(f, key)])
            for f in found
        ),
    )
    return Report(
        title=f"{len(found)} model types" + (f" with {text!r} in the name" if text else ""),
        tables=(table,),
        notes=(
            "Bias and norm: what the class always or never has, or the config key that decides.",
            "Reads: the type of the nested language model, whose row holds.",
        ),
        document={
            "schema_version": 1,
            "families": [{key: getattr(f, key) for key in keys} for f in found],
        },
    )


def devices_report() -> Report:
    """All accelerators of the table."""
    table = Table(
        key="devices",
        title="Devices",
        columns=_DEVICE_COLUMNS,
        rows=tuple(_device_row(device) for device in all_devices()),
    )
    return Report(
        title=f"{len(table.rows)} devices",
        tables=(table,),
        notes=("Usable memory is what a framework sees of a fresh device; see docs/devices.md.",),
        document={
            "schema_version": 1,
            "devices": [_device_document(device) for device in all_devices()],
        },
    )


def _device_row(device: Device) -> tuple[object, ...]:
    return tuple(getattr(device, column.key) for column in _DEVICE_COLUMNS)


def _device_document(device: Device) -> dict[str, object]:
    names = ("vendor", "usable_source", "source", "aliases")
    values = {column.key: getattr(device, column.key) for column in _DEVICE_COLUMNS}
    return values | {name: getattr(device, name) for name in names}


_RULE_COLUMNS = (
    Column(key="code", title="Code"),
    Column(key="name", title="Name"),
    Column(key="severity", title="Severity"),
    Column(key="reads", title="Reads"),
    Column(key="says", title="What it says"),
)


def rules_report() -> Report:
    """All rules, by code. A rule's severity is the worst that it reports."""
    from headcount.audit.rules.registry import BY_READING

    rows = sorted(
        (rule.code, rule.name, rule.severity, reads, (rule.check.__doc__ or "").rstrip("."))
        for reads, rules in BY_READING.items()
        for rule in rules
    )
    table = Table(key="rules", title="Rules", columns=_RULE_COLUMNS, rows=tuple(rows))
    keys = [column.key for column in _RULE_COLUMNS]
    return Report(
        title=f"{len(rows)} rules",
        tables=(table,),
        notes=("docs/findings.md says why each matters and what to do.",),
        document={
            "schema_version": 1,
            "rules": [dict(zip(keys, row, strict=True)) for row in table.rows],
        },
    )
