"""`schema`: what the JSON documents of the commands hold."""

import json
from pathlib import Path

import click

from headcount.library.schemas import TITLES

from .console import Command, write_text
from .options.shared import output_option, report_format


@click.command(cls=Command)
@click.argument("command", type=click.Choice([*TITLES]))
@output_option
def schema(command: str, output: Path | None) -> None:
    """Print the JSON Schema of what COMMAND prints with --format json.

    \b
    Example:
      headcount schema audit
      headcount schema plan -o plan.schema.json
    """
    from headcount.library.schemas import schema_of

    report_format(None, output, ("json",), usual="json")

    write_text(json.dumps(schema_of(command), indent=2) + "\n", output)
