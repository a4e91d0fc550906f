"""`diff`: what differs between two models, layer by layer."""

import sys
from pathlib import Path
from typing import Any

import click

from .console import Command, write_reports
from .options.completion import complete_model
from .options.shared import details_option, output_options, workload_options


@click.command(cls=Command)
@click.argument("a", metavar="A", shell_complete=complete_model)
@click.argument("b", metavar="B", shell_complete=complete_model)
@workload_options
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything differs.")
@details_option
@output_options
def diff(a: str, b: str, exit_code: bool, form: str, output: Path | None, **workload: Any) -> None:
    """Say what differs between models A and B, layer by layer.

    Heads, K/V heads, head_dim, windows, attention parameters and cache bytes are compared.

    \b
    Example:
      headcount diff ./mha ./gqa
      headcount diff llama-2-7b llama-3-8b --context 4k --format markdown
    """
    from headcount.audit.auditing import audit_model
    from headcount.audit.diff import diff_report
    from headcount.model.sizes import AuditRequest

    report = diff_report(audit_model(a), audit_model(b), AuditRequest(**workload))
    write_reports([report], form, output)
    if exit_code and not report.document["same"]:
        sys.exit(1)
