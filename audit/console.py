"""What every command shares: options, errors as exit codes, and where a report goes."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import HeadcountError, MissingExtraError, WriteError
from .units import parse_bytes, parse_count, parse_tokens

if TYPE_CHECKING:
    from .report import Report

    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
MAX_BATCH_SIZE = 1_000_000
_LONGEST_LINE = 1000  # of a message, which may quote a stranger's input


class Failure(click.ClickException):
    """A HeadcountError on its way out: its message on stderr, its own exit code."""

    def __init__(self, error: HeadcountError) -> None:
        from .render.cells import printable

        lines = str(error).split("\n")
        super().__init__("\n".join(printable(line[:_LONGEST_LINE]) for line in lines))
        self.exit_code = error.exit_code  # type: ignore[misc]


class Command(click.Command):
    """Turns our errors into one message and an exit code, and Ctrl-C into 130."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """An empty value is a script's unset variable: refused, never taken for no value."""
        rest = super().parse_args(ctx, args)
        for param in self.params:
            if _is_empty(param, ctx.params.get(param.name or "")):
                raise click.BadParameter("must not be empty", ctx, param)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadcountError as error:
            if ctx.find_root().params.get("debug"):
                raise
            raise Failure(error) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


def _is_empty(param: click.Parameter, value: object) -> bool:
    if isinstance(param, click.Argument) and isinstance(value, tuple):
        return "" in value
    return value == "" != param.default


class Group(click.Group):
    """A group whose commands do so."""

    command_class = Command


class Size(_ParamType):
    """A size option, read by one of the parsers of `units`."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return value if isinstance(value, int) else self.parse(value)
        except HeadcountError as error:
            self.fail(str(error), param, ctx)


class FilePath(click.Path):
    """A path option; an empty one is refused, where Path("") would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


TOKENS, SIZE, COUNT = (
    Size("tokens", parse_tokens),
    Size("size", parse_bytes),
    Size("count", parse_count),
)
PATH = FilePath()


def stack(*decorators: Callable[[Any], Any]) -> Decorator:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


output_options = stack(
    click.option(
        "--format",
        "form",
        type=click.Choice(["table", "markdown", "json", "csv"]),
        default="table",
        show_default=True,
        help="How to print the report.",
    ),
    click.option("-o", "--output", type=PATH, help="Write to this file, not to stdout."),
)
workload_options = stack(
    click.option("--context", type=TOKENS, help="Tokens per sequence: 8192, or 8k for the same."),
    click.option(
        "--batch-size", type=click.IntRange(1, MAX_BATCH_SIZE), default=1, show_default=True
    ),
    click.option("--kv-dtype", help="Element type of the cache: bf16, fp16, fp32, fp8, int8…"),
    click.option("--encoder-tokens", type=TOKENS, help="Tokens that cross-attention sees."),
)
conversion_options = stack(
    click.option(
        "--kv-heads",
        "num_key_value_heads",
        required=True,
        metavar="N",
        help="K/V heads of the result; 1 makes it MQA. Of single layers: 0-15:8,16-31:4.",
    ),
    click.option(
        "--method",
        type=click.Choice(["mean", "first", "medoid", "random"]),
        default="mean",
        show_default=True,
        help="How the K/V heads of a group become one.",
    ),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the method random."),
    click.option("--dry-run", is_flag=True, help="Print the plan and write nothing."),
    click.option(
        "--evaluate", "evaluates", is_flag=True, help="Then evaluate TARGET against SOURCE."
    ),
)
evaluation_options = stack(
    click.option("--text", type=PATH, help="UTF-8 text; default: a sample of prose."),
    click.option(
        "--max-tokens",
        type=TOKENS,
        default=16384,
        show_default=True,
        help="Tokens to score at most.",
    ),
    click.option("--window", type=TOKENS, help="Tokens a window; default: up to 1,024."),
    click.option("--stride", type=TOKENS, help="Tokens between windows; default: half a window."),
    click.option("--tokenizer", type=PATH, help="A folder; default: the model's own."),
    click.option("--torch-device", "device", help="cpu, cuda, cuda:1…; default: cuda if there."),
    click.option("--speed/--no-speed", default=True, help="Whether to measure speed."),
)


def write_reports(reports: "Sequence[Report]", form: str, output: Path | None) -> None:
    """Renders `reports` to stdout or to a file. Raises WriteError."""
    from .render import render

    text = render(reports, form)
    if output is None:
        _print(text)
        return
    try:
        output.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise WriteError(f"{output}: cannot be written: {error.strerror}") from error


def _print(text: str) -> None:
    """To stdout, with escapes for what its encoding lacks. Raises WriteError; a reader that went
    away (BrokenPipeError) is left to click, which then stays quiet."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding), nl=False)
    except BrokenPipeError:
        raise
    except OSError as error:
        _drop_stdout()
        raise WriteError(f"standard output: cannot be written: {error.strerror}") from error


def _drop_stdout() -> None:
    """What is buffered goes to the null device, or Python would try, and fail, again at exit."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def need_extra() -> None:
    """Refuses a command of the heavy half on a base install, in one line."""
    from importlib.util import find_spec

    needed = ("torch", "transformers", "safetensors", "tqdm")
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            f"this command needs {', '.join(missing)}: install the extra `convert`, in a clone of"
            " headcount with: pip install '.[convert]'"
        )


@contextmanager
def on_signals(act: Callable[[int, Any], Any]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP go to `act` inside; one that is ignored (nohup) stays so."""
    import signal
    import threading

    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {n: handler for n in numbers if (handler := signal.getsignal(n)) != signal.SIG_IGN}
    if threading.current_thread() is not threading.main_thread():
        before = {}  # only the main thread may set handlers
    for number in before:
        signal.signal(number, act)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_at_once(number: int, _frame: Any) -> None:
    """Ends the process with 128 + `number`, for when nothing is being written: libraries that are
    being imported catch an exception and go on."""
    try:
        if number == 2:
            os.write(2, b"Interrupted.\n")
    finally:
        os._exit(128 + number)


def exit_cleanly(number: int, _frame: Any) -> None:
    """Leaves through the same cleanup as an error, which further signals do not disturb."""
    import signal

    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def exit_on_findings(reports: "Sequence[Report]", fail_on: str) -> None:
    """Exit code 1 if a finding is at or above the severity `fail_on`."""
    from .report import SEVERITIES

    if fail_on == "never":
        return
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(finding.severity in failing for report in reports for finding in report.findings):
        sys.exit(1)
