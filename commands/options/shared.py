"""The options that several commands share, and the types of their values."""

import math
from collections.abc import Callable, Collection
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.model.units import parse_bytes, parse_count, parse_tokens
from headcount.report import ENDINGS, FORMATS

from ..output.screen import to_view
from .names import BATCH_SIZE, CONTEXT, KV_DTYPE

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


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


class Counts(_ParamType):
    """A number from 1, or several with commas."""

    name = "count,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if not isinstance(value, str):
            return value
        parts: list[Any] = [part.strip() for part in value.split(",")]
        found = tuple(AT_LEAST_1.convert(part, param, ctx) for part in parts)
        return found[0] if len(found) == 1 else found


class FilePath(click.Path):
    """A path option; an empty one is refused, where Path("") would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


class FiniteRange(click.FloatRange):
    """A range, called a number; NaN, which no bound stops, and infinity are refused."""

    name = "number"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


TOKENS, SIZE, COUNT = (
    Size("tokens", parse_tokens),
    Size("size", parse_bytes),
    Size("count", parse_count),
)
PATH = FilePath()


class WholeNumber(click.IntRange):
    """Said to be no integer, where click says `'8,16' is not a valid integer range`."""

    name = "integer"


AT_LEAST_0, AT_LEAST_1 = WholeNumber(min=0), WholeNumber(min=1)


def stack(*decorators: Callable[[Any], Any]) -> Decorator:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


def options_of(request: "type[DataclassInstance]") -> Callable[..., Decorator]:
    """What makes an option, of its flag, type and help, that shows the default of the field of
    `request` that it fills and is called after."""
    defaults = {field.name: field.default for field in fields(request)}

    def option(flag: str, kind: Any = None, words: str | None = None, *, shown: bool = True) -> Any:
        field = flag.removeprefix("--").partition("/")[0].replace("-", "_")
        default = defaults[field]
        return click.option(flag, type=kind, default=default, show_default=shown, help=words)

    return option


def report_format(
    value: str | None, output: Path | None, formats: Collection[str] = FORMATS, usual: str = "table"
) -> str:
    """The format that was named, or the one of `formats` that the name of the output file says;
    else the `usual`. Raises BadParameter for an ending of another."""
    if value is not None or output is None:
        return value or usual
    found = ENDINGS.get(output.suffix.lower(), usual)
    if found not in formats:
        raise click.BadParameter(
            f"{output}: this command does not write {found}; it writes {', '.join(formats)}"
        )
    return found


def _format(ctx: click.Context, param: click.Parameter, value: str | None) -> str:
    assert isinstance(param.type, click.Choice)
    return report_format(value, ctx.params.get("output"), param.type.choices)


output_option = click.option(
    "-o",
    "--output",
    type=PATH,
    is_eager=True,  # its name is asked for the format
    help="Write to this file, not to stdout.",
)
_screen_option = partial(click.option, expose_value=False, callback=to_view)
details_option = _screen_option(
    "--details", is_flag=True, help="Show all there is, not what fits on a screen."
)
screen_options = stack(
    _screen_option("--wide", is_flag=True, help="Show all columns, however narrow the terminal."),
    _screen_option(
        "--color",
        type=click.Choice(["auto", "always", "never"]),
        default="auto",
        show_default=True,
        help="Colours; auto: in a terminal, unless NO_COLOR is set.",
    ),
)


def output_options_with(*more: str) -> Decorator:
    """--format, also of the formats `more` that are one command's own, and --output."""
    return stack(
        click.option(
            "--format",
            "form",
            type=click.Choice([*FORMATS, *more]),
            callback=_format,
            help="How to print the report. Default: as the name of the --output file says (.md,"
            " .json, .csv, .html), else table.",
        ),
        output_option,
        screen_options,
    )


output_options = output_options_with()
list_options = stack(details_option, output_options)


def search_options(what: str) -> Decorator:
    """TEXT..., and --search for the same, as `search`."""

    def join(ctx: click.Context, _: click.Parameter, words: tuple[str, ...]) -> None:
        said = ctx.params.get("search")
        ctx.params["search"] = " ".join((*([said] if said else []), *words)) or None

    return stack(
        click.option("--search", metavar="TEXT", is_eager=True, help=what),
        click.argument("words", nargs=-1, metavar="[TEXT]...", expose_value=False, callback=join),
    )


workload_options = stack(
    click.option(
        *CONTEXT,
        type=TOKENS,
        help="Tokens per sequence: 8192, or 8k for the same.",
    ),
    click.option(
        *BATCH_SIZE, type=WholeNumber(1, limits.BATCH_SIZE.most), default=1, show_default=True
    ),
    click.option(
        *KV_DTYPE,
        help="Element type of the cache: bf16, fp16, fp32, fp8, int8…",
    ),
    click.option("--encoder-tokens", type=TOKENS, help="Tokens that cross-attention sees."),
)
