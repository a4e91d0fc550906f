"""`families`: the model types that can be audited."""

from pathlib import Path

import click

from headcount.report.report import Column, Report, Table

from .console import Command, write_reports
from .options.shared import output_options

_COLUMNS = (
    Column(key="model_type", title="model_type"),
    Column(key="mixers", title="Mixers"),
    Column(key="bias", title="Bias of q, k, v / o"),
    Column(key="norm", title="q/k norm"),
    Column(key="reads", title="Reads", drop=1),
    Column(key="source", title="From", drop=2),
)


@click.command(cls=Command)
@click.option("--search", "text", default="", metavar="TEXT", help="Part of a model_type.")
@output_options
def families(text: str, form: str, output: Path | None) -> None:
    """List the model types that can be audited, and how each one mixes tokens.

    \b
    Example:
      headcount families --search gemma
    """
    write_reports([_report(text)], form, output)


def _report(text: str = "") -> Report:
    """Every model_type that can be audited, or those with `text` in their name."""
    from headcount.arch.described import described
    from headcount.arch.registry import ARCHITECTURES

    names = [name for name in ARCHITECTURES if text.casefold() in name.casefold()]
    found = [described(name) for name in names]
    keys = [column.key for column in _COLUMNS]
    rows = tuple(tuple(_cell(getattr(family, key)) for key in keys) for family in found)
    return Report(
        title=f"{len(found)} model types" + (f" with {text!r} in the name" if text else ""),
        tables=(Table(key="families", title="Families", columns=_COLUMNS, rows=rows),),
        notes=(
            "Bias and norm: what the class always or never has, or the config key that decides.",
            "Reads: the type of the nested language model, which says the rest.",
        ),
        document={
            "schema_version": 1,
            "families": [{key: getattr(family, key) for key in keys} for family in found],
        },
    )


def _cell(value: object) -> object:
    return "; ".join(value) if isinstance(value, tuple | list) else value
