"""The audits of all models of one command, with their reports, and a table that compares them."""

from collections.abc import Callable, Iterator, Sequence

from headcount.model.errors import HeadcountError
from headcount.model.mixers import Mixer
from headcount.model.sizes import AuditRequest, fill_in
from headcount.report.report import Column, Fact, Report, Table, counts_in_words, worst_tone

from .audit_report import audit_report, error_report
from .audited import Audit
from .auditing import audit_model

_COLUMNS = (
    Column(key="model", title="Model"),
    Column(key="parameters", title="Parameters", unit="parameters"),
    Column(key="layers", title="Layers", unit="count", drop=1),
    Column(key="num_attention_heads", title="Heads"),
    Column(key="num_key_value_heads", title="K/V"),
    Column(key="kind", title="Kind"),
    Column(key="head_dim", title="head_dim", drop=3),
    Column(key="attention_parameters", title="Attention", unit="parameters", drop=4),
    Column(key="cache_bytes_of_first_token", title="Cache/token", unit="bytes", drop=2),
    Column(key="cache_bytes_per_token", title="Windows full", unit="bytes", drop=6),
    Column(key="context", title="Context", unit="count", drop=5),
    Column(key="cache_bytes", title="Cache", unit="bytes"),
    Column(key="ratio", title="To the first", unit="ratio"),
    Column(key="findings", title="Findings"),
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
        reports.append(comparison_report(audits, reports, request))
    return reports, any(found is None for _, found in audits)


def comparison_report(
    found: Sequence[tuple[str, Audit | None]],
    reports: Sequence[Report],
    request: AuditRequest,
) -> Report:
    """A row per model at one context, the longest that each has where none is asked for, by the
    name it was asked for; of one that failed only the name."""
    contexts = [fill_in(audit.spec, request).context for _, audit in found if audit is not None]
    sized = request._replace(context=min(contexts, default=request.context))
    rows: list[tuple[object, ...]] = []
    first: int | None = None
    for (target, audit), report in zip(found, reports, strict=True):
        if audit is None:
            rows.append((target, *(None,) * (len(_COLUMNS) - 2), "cannot be audited"))
            continue
        row = _row(audit, sized)
        nbytes = int(str(row[-1]))
        first = nbytes if first is None else first
        rows.append((*row, nbytes / first if first else None, counts_in_words(report.findings)))
    return Report(
        title=f"Comparison of {len(rows)} models"
        + (f" at {sized.context:,} tokens" if sized.context else ""),
        facts=(_answer(found, reports),),
        tables=(Table(key="comparison", title="Comparison", columns=_COLUMNS, rows=tuple(rows)),),
        notes=(
            *(
                f"{target}: {report.notes[0]}"
                for (target, audit), report in zip(found, reports, strict=True)
                if audit is None
            ),
            *_beyond([audit for _, audit in found if audit is not None], sized.context),
        ),
        is_summary=True,
    )


def _beyond(audits: Sequence[Audit], context: int | None) -> Iterator[str]:
    """Which models are not made for so long a context."""
    short = [audit for audit in audits if context and not audit.spec.is_made_for(context)]
    if short:
        known = (f"{one.source.id} ({one.spec.max_position_embeddings:,})" for one in short)
        yield f"Warning: {context:,} tokens are beyond the maximum of {', '.join(known)}."


def _answer(found: Sequence[tuple[str, Audit | None]], reports: Sequence[Report]) -> Fact:
    """How much was found in all of them, and how many cannot be audited."""
    findings = [finding for report in reports for finding in report.findings]
    failed = sum(audit is None for _, audit in found)
    words = counts_in_words(findings) if findings or not failed else ""
    parts = [words, f"{failed} of {len(found)} cannot be audited" if failed else ""]
    tone = "bad" if failed else worst_tone(findings)
    return Fact("verdict", "Findings", "; ".join(filter(None, parts)), tone=tone)


def _row(audit: Audit, request: AuditRequest) -> tuple[object, ...]:
    spec, sizes = audit.spec, fill_in(audit.spec, request)
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    return (
        audit.source.id,
        spec.parameters,
        len(spec.layers),
        *(_values(mixers, name) for name in ("num_attention_heads", "num_key_value_heads")),
        "/".join(dict.fromkeys(mixer.heads for mixer in mixers if mixer.heads)),
        _values(mixers, "head_dim"),
        audit.attention_parameters,
        spec.cache_bytes_of_first_token(bits=sizes.bits),
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
