"""What every command shares: errors as exit codes, and where a report goes."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from headcount.model.errors import HeadcountError, WriteError, of_system
from headcount.model.redacted_output import redact_hooks, show_traceback
from headcount.running.signals import exit_at_once, on_signals

from .names import NAMES
from .output.standard_streams import settle_streams
from .output.waiting import end_waiting, waiting

if TYPE_CHECKING:
    from headcount.report.report import Report, Table


_LISTED = 12  # rows, or as many as a screen has room for
HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}


class Failure(click.ClickException):
    """A HeadcountError on its way out: its message on stderr, its own exit code."""

    def __init__(self, error: HeadcountError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code  # type: ignore[misc]


class _Started(click.Command):
    """Before a command begins, too: a help text that cannot be written, and Ctrl-C."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        settle_streams()
        redact_hooks()
        return super().main(*args, **kwargs)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        try:
            return super().make_context(*args, **kwargs)
        except BrokenPipeError:
            _reader_went_away()
        except OSError as error:
            raise Failure(_stdout_failed(error)) from error
        except KeyboardInterrupt:
            _interrupted()


class Command(_Started):
    """Turns our errors into one message and an exit code, and Ctrl-C into 130."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """An empty value is a script's unset variable: refused, never taken for no value."""
        try:
            rest = super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            from .meant import option_meant

            known = CommandFiles(__package__ or "", NAMES)
            hint = option_meant(error, self, known)
            raise click.UsageError(error.message + hint, ctx) from None
        for param in self.params:
            if _is_empty(param, ctx.params.get(param.name or "")):
                raise click.BadParameter("must not be empty", ctx, param)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            with waiting():
                return super().invoke(ctx)
        except HeadcountError as error:
            if ctx.find_root().params.get("debug"):
                show_traceback(error)
            raise Failure(error) from error
        except BrokenPipeError:
            _reader_went_away()
        except OSError as error:
            if ctx.find_root().params.get("debug"):
                show_traceback(error)
            raise Failure(of_system(error)) from error
        except KeyboardInterrupt:
            _interrupted()


def _reader_went_away() -> NoReturn:
    """As a program that SIGPIPE ends: quiet, and not with a status that means findings."""
    _drop_stdout()
    sys.exit(128 + 13)


def _interrupted() -> NoReturn:
    click.echo("Interrupted.", err=True)
    sys.exit(130)


def _is_empty(param: click.Parameter, value: object) -> bool:
    if isinstance(param, click.Argument) and isinstance(value, tuple):
        return "" in value
    return value == "" != param.default


class CommandFiles(Mapping[str, click.Command]):
    """Commands by their names: each is a function in the file of `package` that has its name, which
    is imported when it is asked for. A signal while it loads ends the process."""

    def __init__(self, package: str, names: Iterable[str]) -> None:
        self.package, self.names = package, frozenset(names)

    def __getitem__(self, name: str) -> click.Command:
        if name not in self.names:
            raise KeyError(name)
        with on_signals(exit_at_once):
            command: click.Command = getattr(import_module(f"{self.package}.{name}"), name)
        return command

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)


class Group(_Started, click.Group):
    """The program: `commands` are only looked up, never added to."""

    def __init__(self, *args: Any, commands: CommandFiles, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = commands  # type: ignore[assignment]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from .meant import command_meant

            said, hint = error.format_message(), command_meant(args[0], self.commands)
            # Newer versions of click name what is near themselves.
            raise click.UsageError(said + ("" if "Did you mean" in said else hint), ctx) from None


def write_reports(reports: "Sequence[Report]", form: str, output: Path | None) -> None:
    """Renders `reports` to stdout, as wide as that is, or to a file, and then says the answers in a
    terminal, too. Raises WriteError."""
    from headcount.report import render
    from headcount.report.view import View

    from .output.screen import view

    shown = view() if output is None else View(details=view().details, blocks=True)
    write_text(render(reports, form, shown), output)
    if output is not None and sys.stderr.isatty():
        from headcount.report.terminal import answers

        for line in answers(reports):
            click.echo(line, err=True)


def write_list(
    report: "Report", form: str, output: Path | None, overview: "Table | None" = None
) -> None:
    """A report that lists what is known. A terminal is shown the `overview`, or what fits on its
    screen, unless all is asked for; what is none gets the list. Raises WriteError."""
    if sys.stdout.isatty():
        first, *others = report.tables
        shown = (
            [first._replace(brief=_LISTED)]
            if overview is None
            else [overview, first._replace(brief=0)]
        )
        hidden = (table._replace(brief=0) for table in others)
        report = report._replace(tables=(*shown, *hidden), records=report.records or first)
    write_reports([report], form, output)


def write_text(text: str, output: Path | None) -> None:
    """Writes `text` to stdout or to a file. Raises WriteError."""
    if output is None:
        _print(text)
        return
    from .output.report_file import write_report

    write_report(output, text)
    if sys.stderr.isatty():
        end_waiting()
        click.echo(f"{output}: written", err=True)


def hand_over(
    reports: "Sequence[Report]", holds: str, write: "Callable[[Sequence[Report]], None]"
) -> None:
    """Writes the reports of what has been done; a WriteError also says what `holds` even so."""
    try:
        write(reports)
    except WriteError as error:
        raise WriteError(f"{error}; {holds}") from error


def _print(text: str) -> None:
    """To stdout, with escapes for what its encoding lacks. Raises WriteError; a reader that went
    away (BrokenPipeError) is no error to tell of."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        shown = text.encode(encoding, "backslashreplace").decode(encoding)
        end_waiting()
        click.echo(shown, nl=False, color=True)  # has none that were not asked for
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _stdout_failed(error) from error


def _drop_stdout() -> None:
    """What is buffered goes to the null device, or Python would try, and fail, again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _stdout_failed(error: OSError) -> WriteError:
    """The error to raise."""
    _drop_stdout()
    return WriteError(f"standard output: cannot be written: {error.strerror}")


def exit_on_findings(reports: "Sequence[Report]", fail_on: str) -> None:
    """Exit code 1 if a finding is at or above the severity `fail_on`."""
    from headcount.report.report import SEVERITIES

    if fail_on == "never":
        return
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(finding.severity in failing for report in reports for finding in report.findings):
        sys.exit(1)
