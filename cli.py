"""The command line: a name, and the file in `commands/` that holds the command."""

import signal
from contextlib import suppress
from typing import NoReturn

# Ctrl-C while modules are being imported ends the process, without a traceback.
_BEFORE = signal.getsignal(signal.SIGINT)
if _BEFORE is signal.default_int_handler:
    with suppress(ValueError):  # another thread imports this: only the main one may
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import click

from headcount.commands.console import HELP_OPTIONS, CommandFiles, Group
from headcount.commands.names import NAMES
from headcount.model.version import __version__

if _BEFORE is signal.default_int_handler:
    with suppress(ValueError):
        signal.signal(signal.SIGINT, _BEFORE)

COMMANDS = CommandFiles("headcount.commands", NAMES)


@click.group(cls=Group, commands=COMMANDS, context_settings=HELP_OPTIONS)
@click.version_option(__version__, prog_name="headcount")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Count attention heads and what they cost: audit, plan, convert and evaluate models.

    Exit status of every command: 0 fine, 1 a finding at or above --fail-on or a result that is not
    finite, 2 wrong use or unreadable input, 3 a failure while writing, 128 + N on signal N (130).
    """


def audit_main() -> NoReturn:
    """The command `audit`: short for `headcount audit`."""
    import gc

    gc.disable()  # a short process that keeps what it makes: collecting is a tenth of its time
    COMMANDS["audit"].main(prog_name="audit")
    raise AssertionError("click exits by itself")
