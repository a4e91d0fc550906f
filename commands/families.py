"""`families`: the model types that can be audited."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options, search_options


@click.command(cls=Command)
@search_options("Part of a model_type.")
@list_options
def families(search: str | None, form: str, output: Path | None) -> None:
    """List the model types that can be audited, and how each one mixes tokens.

    \b
    Example:
      headcount families gemma
    """
    from headcount.library.listings import families as known

    found = known(search)
    write_list(found.report, form, output, found.overview)
