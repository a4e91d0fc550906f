"""The audits of all models of one command, with their reports, and a table that compares them."""

from collections.abc import Callable, Iterable, Sequence

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Mixer
from headcount.model.sizes import AuditRequest, fill_in
from headcount.report.report import Column, Report, Table

from .audit_report import audit_report, error_report
from .audited import Audit
from .auditing import audit_model

_COLUMNS = (
    Column(key="model", title="Model"),
    Column(key="parameters", title="Parameters", unit="parameters"),
    Column(key="layers", title="Layers", unit="count"),
    Column(key="num_attention_heads", title="Heads"),
    Column(key="num_key_value_heads", title="K/V"),
    Column(key="head_dim", title="head_dim"),
    Column(key="attention_parameters", title="Attention", unit="parameters"),
    Column(key="cache_bytes_per_token", title="Cache/token", unit="bytes"),
    Column(key="context", title="Context", unit="count"),
    Column(key="cache_bytes", title="Cache", unit="bytes"),
)
Look = Callable[[Audit, AuditRequest], Report]


def audit_all(
    models: Sequence[str],
    request: AuditRequest,
    *,
    config: str | None = None,
    strict: bool = False,
    select: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
    compare: bool = False,
    more: Look | None = None,
) -> tuple[list[Report], bool]:
    """A report per model, and whether one of several could not be audited: it has an error report.

    `more` makes the report of an audit, with what the heavy half adds. `compare`: several models
    end in a table. Raises HeadcountError for a single model.
    """
    reports: list[Report] = []
    audits: list[tuple[str, Audit | None]] = []
    for model in models:
        try:
            found = audit_model(model, config, strict=strict)
            reports.append((more or audit_report)(found, request))
            audits.append((model, found))
        except HeadcountError as error:
            if len(models) == 1:
                raise
            reports.append(error_report(model, error))
            audits.append((model, None))
    if select or ignore:
        from .rules.registry import choose

        reports = [choose(report, select, ignore) for report in reports]
    if compare and len(models) > 1:
        reports.append(comparison_report(audits, request))
    return reports, any(found is None for _, found in audits)


def comparison_report(found: Iterable[tuple[str, Audit | None]], request: AuditRequest) -> Report:
    """A row per model, by the name it was asked for; of one that failed only the name."""
    rows = tuple(
        (target, *(None,) * (len(_COLUMNS) - 1)) if audit is None else _row(audit, request)
        for target, audit in found
    )
    table = Table(key="comparison", title="Comparison", columns=_COLUMNS, rows=rows)
    return Report(title=f"Comparison of {len(rows)} models", tables=(table,))


def _row(audit: Audit, request: AuditRequest) -> tuple[object, ...]:
    spec, sizes = audit.spec, fill_in(audit.spec, request)
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    return (
        audit.source.id,
        spec.parameters,
        len(spec.layers),
        *(_values(mixers, name) for name in ("num_attention_heads", "num_key_value_heads")),
        _values(mixers, "head_dim"),
        audit.attention_parameters,
        spec.cache_bytes_per_token(bits=sizes.bits, within=spec.longest(sizes.context)),
        sizes.context,
        sum(sizes.layer_bytes(layer) for layer in spec.layers),
    )


def _values(mixers: list[Mixer], name: str) -> object:
    """The value that all mixers have, or the least and the greatest."""
    values = {v for mixer in mixers if (v := getattr(mixer, name, None)) is not None}
    if len(values) < 2:
        return next(iter(values), None)
    return f"{min(values)}-{max(values)}"
