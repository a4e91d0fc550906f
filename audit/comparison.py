"""Several models side by side: one row each, behind their reports."""

from collections.abc import Iterable

from headcount.model.mixers import Mixer
from headcount.model.sizes import AuditRequest, fill_in
from headcount.report.report import Column, Report, Table

from .audited import Audit

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
        spec.cache_bytes_per_token(bits=sizes.bits),
        sizes.context,
        sum(sizes.layer_bytes(layer) for layer in spec.layers),
    )


def _values(mixers: list[Mixer], name: str) -> object:
    """The value that all mixers have, or the least and the greatest."""
    values = {v for mixer in mixers if (v := getattr(mixer, name, None)) is not None}
    if len(values) < 2:
        return next(iter(values), None)
    return f"{min(values)}-{max(values)}"
