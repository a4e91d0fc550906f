"""`devices`: the accelerators that `plan` knows."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options


@click.command(cls=Command)
@list_options
def devices(form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices --details
      headcount devices --format markdown
    """
    from headcount.library.listings import devices as known

    found = known()
    write_list(found.report, form, output, found.overview)
