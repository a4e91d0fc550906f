"""`models`: the catalogue."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options, search_options


@click.command(cls=Command)
@search_options("Words in a name or model_type.")
@list_options
def models(search: str | None, form: str, output: Path | None) -> None:
    """List the models of the catalogue, which need no network.

    \b
    Example:
      headcount models qwen3 8b
      headcount models --details
    """
    from headcount.library.listings import models as known

    found = known(search)
    write_list(found.report, form, output, found.overview)
