"""`models`: the catalogue."""

from pathlib import Path

import click

from headcount.arch.registry import architecture_of
from headcount.report.report import Column, Report, Table
from headcount.sources.catalogue import CatalogueRow, catalogue, search_catalogue

from .console import Command, write_reports
from .options.shared import output_options

_COLUMNS = (
    Column(key="id", title="Model"),
    Column(key="aliases", title="Aliases"),
    Column(key="model_type", title="model_type"),
    Column(key="parameters", title="Parameters", unit="parameters"),
    Column(key="auditable", title="Audit"),
)


@click.command(cls=Command)
@click.option("--search", "text", default="", metavar="TEXT", help="Words in a name or model_type.")
@output_options
def models(text: str, form: str, output: Path | None) -> None:
    """List the models of the catalogue, which need no network.

    \b
    Example:
      headcount models --search "qwen3 8b"
    """
    write_reports([_report(text)], form, output)


def _report(text: str = "") -> Report:
    """The catalogue, or what `text` finds in it."""
    rows = search_catalogue(text)
    table = Table(
        key="models", title="Models", columns=_COLUMNS, rows=tuple(_row(row) for row in rows)
    )
    return Report(
        title=f"{len(rows)} of {len(catalogue())} models"
        + (f" match {text!r}" if text else " in the catalogue"),
        tables=(table,),
        document={"schema_version": 1, "models": table.documents()},
    )


def _row(row: CatalogueRow) -> tuple[object, ...]:
    known = row.model_type is not None and architecture_of(row.model_type) is not None
    aliases = ", ".join((*row.aliases, *row.checkpoints))
    return (row.id, aliases, row.model_type, row.parameters, "yes" if known else "not yet")
