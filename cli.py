"""The command line: parse, call, render. What a command needs is imported inside it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from headcount import __version__
from headcount.audit.console import (
    COUNT,
    PATH,
    Group,
    conversion_options,
    evaluation_options,
    exit_at_once,
    exit_cleanly,
    exit_on_findings,
    need_extra,
    on_signals,
    output_options,
    workload_options,
    write_reports,
)

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

if TYPE_CHECKING:
    from headcount.audit.audited import Audit
    from headcount.audit.report import Report


@click.group(cls=Group, context_settings=HELP_OPTIONS)
@click.version_option(__version__, prog_name="headcount")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Count attention heads and what they cost: audit, plan, convert and evaluate models.

    Exit status of every command: 0 fine, 1 a finding at or above --fail-on or a result that is not
    finite, 2 wrong use or unreadable input, 3 a failure while writing, 128 + N on signal N (130).
    """


AUDIT_HELP = """Report heads, attention parameters and KV-cache bytes of MODEL, layer by layer.

MODEL is a name of the catalogue (`headcount models`), a folder, a config.json (- reads one from
standard input), a .safetensors file or index, a .gguf, .bin or .pt file, or org/name[@revision] of
the Hugging Face Hub. Config and headers are read, never weights. Several models are also compared.

\b
Example:
  audit llama-3-8b --context 8k --kv-dtype fp8
  audit ./my-checkpoint --format json
  audit llama-3-8b ./model.gguf

Exit status: 0 fine, 1 findings at or above --fail-on, 2 wrong use or unreadable input, 3 a failure
while writing."""


@main.command("audit", help=AUDIT_HELP, context_settings=HELP_OPTIONS)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@workload_options
@click.option("--config", metavar="FILE", help="The config.json of weights that lie alone.")
@click.option("--explain", is_flag=True, help="Also say where each value came from.")
@click.option("--strict", is_flag=True, help="Refuse a model_type that nothing describes.")
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "note", "never"]),
    default="error",
    show_default=True,
    help="The least severity of a finding that makes the exit status 1.",
)
@click.option("--select", multiple=True, metavar="CODES", help="Only these findings: H1,H203.")
@click.option("--ignore", multiple=True, metavar="CODES", help="Without these findings: H4,H606.")
@click.option("--scan", is_flag=True, help="Also read the weights: NaN, zeros, equal K/V heads.")
@output_options
def audit(
    models: tuple[str, ...],
    config: str | None,
    select: tuple[str, ...],
    ignore: tuple[str, ...],
    scan: bool,
    strict: bool,
    fail_on: str,
    form: str,
    output: Path | None,
    **workload: Any,
) -> None:
    from headcount.audit.audit_report import audit_report, error_report
    from headcount.audit.auditing import audit_model
    from headcount.audit.errors import HeadcountError
    from headcount.audit.sizes import AuditRequest

    request = AuditRequest(**workload)
    reports: list[Report] = []
    audits: list[tuple[str, Audit | None]] = []
    for model in models:
        try:
            found = audit_model(model, config, strict=strict)
            report = _scanned(found, request) if scan else audit_report(found, request)
            reports.append(report)
            audits.append((model, found))
        except HeadcountError as error:
            if len(models) == 1:
                raise
            reports.append(error_report(model, error))
            audits.append((model, None))
    if select or ignore:
        from headcount.audit.rules.registry import choose

        reports = [choose(report, select, ignore) for report in reports]
    if len(models) > 1 and form in ("table", "markdown"):
        from headcount.audit.comparison import comparison_report

        reports.append(comparison_report(audits, request))
    write_reports(reports, form, output)
    if any(found is None for _, found in audits):
        sys.exit(2)
    exit_on_findings(reports, fail_on)


@main.command("diff")
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@workload_options
@click.option("--exit-code", is_flag=True, help="Exit with 1 if anything differs.")
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
    from headcount.audit.sizes import AuditRequest

    report = diff_report(audit_model(a), audit_model(b), AuditRequest(**workload))
    write_reports([report], form, output)
    if exit_code and not report.document["same"]:
        sys.exit(1)


def _scanned(audit: Any, request: Any) -> "Report":
    """The report of an audit and of a scan of its weights. Raises HeadcountError."""
    need_extra()
    from headcount.convert.scan import scan_report

    return scan_report(audit, request)


def audit_main() -> NoReturn:
    """The command `audit`: short for `headcount audit`."""
    import gc

    gc.disable()  # a short process that keeps what it makes: collecting is a tenth of its time
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

    write_reports([models_report(text)], form, output)


@main.command("families")
@click.option("--search", "text", default="", metavar="TEXT", help="Part of a model_type.")
@output_options
def families(text: str, form: str, output: Path | None) -> None:
    """List the model types that can be audited, and how each one mixes tokens.

    \b
    Example:
      headcount families --search gemma
    """
    from headcount.audit.lists import families_report

    write_reports([families_report(text)], form, output)


@main.command("devices")
@output_options
def devices(form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices --format markdown
    """
    from headcount.audit.lists import devices_report

    write_reports([devices_report()], form, output)


@main.command("rules")
@output_options
def rules(form: str, output: Path | None) -> None:
    """List the rules of `audit`: codes, severities and what they read.

    \b
    Example:
      headcount rules --format json
      headcount audit ./checkpoint --select H1,H2 --ignore H106
    """
    from headcount.audit.lists import rules_report

    write_reports([rules_report()], form, output)


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
        weights_bytes=None if parameters else audit.loaded_bytes,
        config=audit.config,
    )
    found = [finding.document() for finding in audit.findings]
    document = {**report.document, "findings": found}
    write_reports([report._replace(findings=audit.findings, document=document)], form, output)


@main.command("convert")
@click.argument("source", type=PATH)
@click.argument("target", type=PATH)
@conversion_options
@evaluation_options
@output_options
def convert(
    source: Path,
    target: Path,
    num_key_value_heads: str,
    method: Any,
    seed: int,
    dry_run: bool,
    evaluates: bool,
    form: str,
    output: Path | None,
    **evaluation: Any,
) -> None:
    """Turn the model in folder SOURCE into one with fewer K/V heads, in folder TARGET.

    The plan is made and checked first. Then everything that does not change is copied byte for
    byte, and K/V heads are merged, tensor by tensor. TARGET appears when it is complete and its
    audit is clean.

    \b
    Example:
      headcount convert ./mha ./gqa --kv-heads 8 --dry-run
      headcount convert ./mha ./gqa --kv-heads 8 --evaluate --text prose.txt
    """
    with on_signals(exit_at_once):
        need_extra()
        from headcount.convert.as_report import conversion_report, plan_report
        from headcount.convert.conversion import apply_plan
        from headcount.convert.plan.planner import plan_conversion
        from headcount.convert.plan.request import ConversionRequest, parse_key_value_heads
        from headcount.convert.report_path import check_report_path

        check_report_path(output, (source, target))
        plan = plan_conversion(
            ConversionRequest(
                source=source,
                target=target,
                num_key_value_heads=parse_key_value_heads(num_key_value_heads),
                method=method,
                seed=seed,
            )
        )
        if evaluates:
            from headcount.convert.evaluate.command import check_evaluation

            check_evaluation(source, **evaluation)
        if dry_run:
            write_reports([plan_report(plan)], form, output)
            return
        with on_signals(exit_cleanly):
            reports = [conversion_report(apply_plan(plan))]
        try:
            if evaluates:
                from headcount.convert.evaluate.command import run_evaluation

                reports.append(run_evaluation(str(target), str(source), **evaluation))
        finally:  # an evaluation that fails does not undo the conversion
            write_reports(reports, form, output)


@main.command("evaluate")
@click.argument("model")
@click.option("--against", metavar="ORIGINAL", help="The model to compare with, in a folder.")
@click.option("--dtype", help="Element type to load the weights as; default: as stored.")
@evaluation_options
@output_options
def evaluate(
    model: str, against: str | None, form: str, output: Path | None, **request: Any
) -> None:
    """Measure MODEL, a folder: loss, perplexity, cache bytes and speed.

    With ORIGINAL also the KL divergence and top-1 agreement between the two.

    \b
    Example:
      headcount evaluate ./gqa --against ./mha --text prose.txt
    """
    with on_signals(exit_at_once):
        need_extra()
        from headcount.convert.evaluate.command import run_evaluation
        from headcount.convert.report_path import check_report_path

        check_report_path(output, [Path(folder) for folder in (model, against) if folder])
        write_reports([run_evaluation(model, against, **request)], form, output)
