"""`audit`: heads, attention parameters and cache bytes of models, and what is wrong with them."""

import sys
from pathlib import Path
from typing import Any

import click

from headcount.report import FOR_PEOPLE
from headcount.report.report import SEVERITIES

from .console import HELP_OPTIONS, Command, exit_on_findings, write_reports, write_text
from .options.completion import complete_model
from .options.shared import details_option, output_options_with, stack, workload_options

_OPTIONS = stack(
    click.option("--config", metavar="FILE", help="The config.json of weights that lie alone."),
    click.option("--explain", is_flag=True, help="Also say where each value came from."),
    click.option("--strict", is_flag=True, help="Refuse a model_type that nothing describes."),
    click.option(
        "--fail-on",
        type=click.Choice([*SEVERITIES, "never"]),
        default="error",
        show_default=True,
        help="The least severity of a finding that makes the exit status 1.",
    ),
    click.option("--select", multiple=True, metavar="CODES", help="Only these findings: H1,H203."),
    click.option("--ignore", multiple=True, metavar="CODES", help="Without these: H4,H606."),
    click.option("--scan", is_flag=True, help="Also read the weights: NaN, zeros, equal heads."),
    click.option("--verify", is_flag=True, help="Also build it with transformers, and compare."),
)


@click.command(cls=Command, context_settings=HELP_OPTIONS)
@click.argument(
    "models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_model
)
@workload_options
@_OPTIONS
@details_option
@output_options_with("sarif")
def audit(
    models: tuple[str, ...],
    config: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    scan: bool,
    verify: bool,
    strict: bool,
    fail_on: str,
    form: str,
    output: Path | None,
    **workload: Any,
) -> None:
    """Report heads, attention parameters and KV-cache bytes of MODEL, layer by layer.

    MODEL is a name of the catalogue (`headcount models`), a folder, a config.json (- reads one from
    standard input), a .safetensors file or index, a .gguf, .bin or .pt file, or
    org/name[@revision] of the Hugging Face Hub (org/name/FILE.gguf where it holds several). Config
    and headers are read, never weights. Several models are also compared.

    \b
    Example:
      audit llama-3-8b --context 8k --kv-dtype fp8
      audit ./my-checkpoint --format json
      audit llama-3-8b ./model.gguf
      audit ./my-checkpoint --format sarif -o headcount.sarif

    Exit status: 0 fine, 1 findings at or above --fail-on, 2 wrong use or unreadable input, 3 a
    failure while writing.
    """
    from headcount.audit.several import audit_all
    from headcount.library.deeper_looks import deeper_look
    from headcount.model.sizes import AuditRequest

    look = deeper_look(scan=scan, verify=verify)
    if form == "sarif":
        from headcount.audit.audit_report import audit_report
        from headcount.audit.sarif import SeenSources, sarif

        look = seen = SeenSources(look or audit_report)
    reports, failed = audit_all(
        models,
        AuditRequest(**workload),
        config=config,
        strict=strict,
        select=select,
        ignore=ignore,
        compare=form in FOR_PEOPLE,
        more=look,
    )
    if form == "sarif":
        write_text(sarif(reports, seen.found), output)
    else:
        write_reports(reports, form, output)
    if failed:
        sys.exit(2)
    exit_on_findings(reports, fail_on)
