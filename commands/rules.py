"""`rules`: what `audit` looks for."""

from pathlib import Path

import click

from .console import Command, write_list
from .options.shared import list_options, search_options


@click.command(cls=Command)
@search_options("Words in a code, a name or what a rule says.")
@list_options
def rules(search: str | None, form: str, output: Path | None) -> None:
    """List the rules of `audit`: codes, severities and what they read.

    \b
    Example:
      headcount rules shard
      headcount rules --details
      headcount rules --format json
      headcount audit ./checkpoint --select H1,H2 --ignore H106
    """
    from headcount.library.listings import rules as known

    found = known(search)
    write_list(found.report, form, output, found.overview)
