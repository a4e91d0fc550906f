"""The help of a command whose options are many: under headings, each of them under one."""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import click

from .console import Command


class GroupedCommand(Command):
    """`headings` -> the options that stand below them, by their names: all but that for this help,
    which is the last."""

    headings: ClassVar[Mapping[str, Sequence[str]]] = {}

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """In the order of the headings, and below one in that of the command line's options."""
        under = {name: heading for heading, names in self.headings.items() for name in names}
        found: dict[str, list[tuple[str, str]]] = {one: [] for one in self.headings}
        own = self.get_help_option(ctx)
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                is_own = own is not None and param.name == own.name
                heading = [*self.headings][-1] if is_own else under[param.name or ""]
                found[heading].append(record)
        for heading, records in found.items():
            with formatter.section(heading):
                formatter.write_dl(records)
