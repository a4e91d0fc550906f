"""`rules`: what `audit` looks for."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options


@click.command(cls=Command)
@list_options
def rules(form: str, output: Path | None) -> None:
    """List the rules of `audit`: codes, severities and what they read.

    \b
    Example:
      headcount rules --details
      headcount rules --format json
      headcount audit ./checkpoint --select H1,H2 --ignore H106
    """
    from headcount.library.listings import rules as known

    found = known()
    write_list(found.report, form, output, found.overview)
