"""What the screen is: how wide, whether it shows colours, and how much of a report is wanted."""

import os
import sys
from typing import Any

import click

from headcount.report.view import View, output_width

_KEY = "headcount.screen"


def to_view(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    """Keeps the value of an option that `view` asks for."""
    ctx.meta.setdefault(_KEY, {})[param.name] = value


def view() -> View:
    """Of standard output, as the options of the command that runs have it. What is no terminal is
    as wide as COLUMNS says, or has no bound."""
    asked = click.get_current_context().meta.get(_KEY, {})
    is_terminal = sys.stdout.isatty()
    return View(
        width=None if asked.get("wide") else output_width(),
        details=bool(asked.get("details", True)),  # commands without it show all
        color=_has_colors(asked.get("color", "auto"), is_terminal),
        blocks="utf" in (sys.stdout.encoding or "").lower(),
    )


def _has_colors(asked: str, is_terminal: bool) -> bool:
    """By https://no-color.org where nothing is asked for."""
    if asked != "auto":
        return asked == "always"
    dumb = os.environ.get("TERM") == "dumb" or bool(os.environ.get("NO_COLOR"))
    return is_terminal and not dumb
