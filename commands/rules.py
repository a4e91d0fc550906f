"""`rules`: what `audit` looks for."""

from pathlib import Path

import click

from headcount.report.report import Column, Report, Table

from .console import Command, write_reports
from .options.shared import output_options

_COLUMNS = (
    Column(key="code", title="Code"),
    Column(key="name", title="Name"),
    Column(key="severity", title="Severity"),
    Column(key="reads", title="Reads", drop=1),
    Column(key="says", title="What it says"),
)


@click.command(cls=Command)
@output_options
def rules(form: str, output: Path | None) -> None:
    """List the rules of `audit`: codes, severities and what they read.

    \b
    Example:
      headcount rules --format json
      headcount audit ./checkpoint --select H1,H2 --ignore H106
    """
    write_reports([_report()], form, output)


def _report() -> Report:
    """All rules, by code. A rule's severity is the worst that it reports."""
    from headcount.audit.rules.registry import BY_READING

    rows = sorted(
        (rule.code, rule.name, rule.severity, reads, (rule.check.__doc__ or "").rstrip("."))
        for reads, rules in BY_READING.items()
        for rule in rules
    )
    table = Table(key="rules", title="Rules", columns=_COLUMNS, rows=tuple(rows))
    return Report(
        title=f"{len(rows)} rules",
        tables=(table,),
        notes=("docs/findings.md says why each matters and what to do.",),
        document={"schema_version": 1, "rules": table.documents()},
    )
