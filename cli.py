"""The command line: parse, call, render. What a command needs is imported inside it."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from headcount import __version__
from headcount.audit.errors import HeadcountError, WriteError
from headcount.audit.units import parse_bytes, parse_count, parse_tokens

if TYPE_CHECKING:
    from headcount.audit.report import Report

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


class _Failure(click.ClickException):
    """A HeadcountError on its way out: its message on stderr, its own exit code."""

    def __init__(self, error: HeadcountError) -> None:
        super().__init__(str(error))
        self.exit_code = error.exit_code  # type: ignore[misc]


class _Command(click.Command):
    """Turns our errors into one message and an exit code, and Ctrl-C into 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except HeadcountError as error:
            if ctx.find_root().params.get("debug"):
                raise
            raise _Failure(error) from error
        except KeyboardInterrupt:
            click.echo("Interrupted.", err=True)
            sys.exit(130)


class _Group(click.Group):
    command_class = _Command


class _Size(click.ParamType[int]):
    """A size option, read by one of the parsers of `units`."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return value if isinstance(value, int) else self.parse(value)
        except HeadcountError as error:
            self.fail(str(error), param, ctx)


TOKENS, SIZE, COUNT = (
    _Size("tokens", parse_tokens),
    _Size("size", parse_bytes),
    _Size("count", parse_count),
)


def _stack(*decorators: Callable[[Any], Any]) -> Decorator:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


output_options = _stack(
    click.option(
        "--format",
        "form",
        type=click.Choice(["table", "markdown", "json", "csv"]),
        default="table",
        show_default=True,
        help="How to print the report.",
    ),
    click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="Write to FILE, not to stdout."
    ),
)
workload_options = _stack(
    click.option("--context", type=TOKENS, help="Tokens per sequence, such as 8192 or 8k (8,192)."),
    click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True),
    click.option("--kv-dtype", help="Element type of the cache: bf16, fp16, fp32, fp8, int8…"),
)
debug_option = click.option("--debug", is_flag=True, help="Show the traceback of an error.")


def _write(reports: "Sequence[Report]", form: str, output: Path | None) -> None:
    from headcount.audit.render import render

    text = render(reports, form)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        raise WriteError(f"{output}: cannot be written: {error.strerror}") from error


def _exit_on_findings(reports: "Sequence[Report]", fail_on: str) -> None:
    from headcount.audit.report import SEVERITIES

    if fail_on == "never":
        return
    failing = SEVERITIES[: SEVERITIES.index(fail_on) + 1]
    if any(finding.severity in failing for report in reports for finding in report.findings):
        sys.exit(1)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="headcount")
@debug_option
def main(debug: bool) -> None:
    """Count attention heads and what they cost: audit, plan, convert and evaluate models."""


AUDIT_HELP = """Report heads, attention parameters and KV-cache bytes of MODEL, layer by layer.

MODEL is a name of the catalogue (`headcount models`), a folder, a config.json, a .safetensors file
or index, or org/name[@revision] of the Hugging Face Hub. Config and headers are read,
never weights.

\b
Example:
  audit llama-3-8b --context 8k --kv-dtype fp8
  audit ./my-checkpoint --format json

Exit status: 0 fine, 1 findings at or above --fail-on, 2 wrong use or unreadable input."""


@main.command("audit", help=AUDIT_HELP)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@workload_options
@click.option("--encoder-tokens", type=TOKENS, help="Tokens that cross-attention sees.")
@click.option("--config", metavar="FILE", help="The config.json of weights that lie alone.")
@click.option("--explain", is_flag=True, help="Also say where each value came from.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="The least severity of a finding that makes the exit status 1.",
)
@output_options
def audit(
    models: tuple[str, ...],
    config: str | None,
    fail_on: str,
    form: str,
    output: Path | None,
    **workload: Any,
) -> None:
    from headcount.audit.audit_report import audit_report
    from headcount.audit.auditing import audit_model
    from headcount.audit.sizes import AuditRequest

    request = AuditRequest(**workload)
    reports = [audit_report(audit_model(model, config), request) for model in models]
    _write(reports, form, output)
    _exit_on_findings(reports, fail_on)


def audit_main() -> NoReturn:
    """The command `audit`: short for `headcount audit`."""
    audit.main(prog_name="audit")
    raise AssertionError("click exits by itself")


@main.command("models")
@click.option("--search", "text", default="", metavar="TEXT", help="Words in a name or model_type.")
@output_options
def models(text: str, form: str, output: Path | None) -> None:
    """List the models of the catalogue, which need no network.

    \b
    Example:
      headcount models --search "qwen3 8b"
    """
    from headcount.audit.lists import models_report

    _write([models_report(text)], form, output)


@main.command("devices")
@output_options
def devices(form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices --format markdown
    """
    from headcount.audit.lists import devices_report

    _write([devices_report()], form, output)


@main.command("plan")
@click.argument("model")
@click.option("--device", metavar="NAME|SIZE", help="Such as h100 (`headcount devices`) or 80GiB.")
@workload_options
@click.option("--dtype", help="Element type that the weights are loaded as; default: as stored.")
@click.option(
    "--tp",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Devices that share the model (tensor parallel).",
)
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    default=0.9,
    show_default=True,
    help="Share of the usable memory that may be planned with.",
)
@click.option("--encoder-tokens", type=TOKENS, help="Tokens that cross-attention sees.")
@click.option("--parameters", type=COUNT, help="Such as 7b, where the config does not tell.")
@output_options
def plan(
    model: str,
    device: str | None,
    parameters: int | None,
    form: str,
    output: Path | None,
    **request: Any,
) -> None:
    """Say what serving MODEL takes in memory, and what fits where.

    Weights, KV cache and overhead are held against DEVICE; without one, against every device.

    \b
    Example:
      headcount plan llama-3-8b --device h100 --context 8k
      headcount plan llama-3-70b --tp 4 --kv-dtype fp8 --format markdown
    """
    from dataclasses import replace

    from headcount.audit.auditing import audit_model
    from headcount.audit.plan.devices import parse_device
    from headcount.audit.plan.report import plan_report
    from headcount.audit.plan.request import PlanRequest

    audit = audit_model(model)
    report = plan_report(
        replace(audit.spec, parameters=parameters) if parameters else audit.spec,
        PlanRequest(device=parse_device(device) if device else None, **request),
        model_id=audit.source.id,
        weights_bytes=None if parameters else audit.weights_bytes,
        config=audit.config,
    )
    _write([report], form, output)
