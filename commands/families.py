"""`families`: the model types that can be audited."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options


@click.command(cls=Command)
@click.option("--search", metavar="TEXT", help="Part of a model_type.")
@list_options
def families(search: str | None, form: str, output: Path | None) -> None:
    """List the model types that can be audited, and how each one mixes tokens.

    \b
    Example:
      headcount families --search gemma
    """
    from headcount.library.listings import families as known

    found = known(search)
    write_list(found.report, form, output, found.overview)
