"""`devices`: the accelerators that `plan` knows."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options, search_options


@click.command(cls=Command)
@search_options("Words in a name, or of a vendor.")
@list_options
def devices(search: str | None, form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices rtx 4090
      headcount devices --details
      headcount devices --format markdown
    """
    from headcount.library.listings import devices as known

    found = known(search)
    write_list(found.report, form, output, found.overview)
