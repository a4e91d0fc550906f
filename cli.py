"""The command line: parse, call, render. What a command needs is imported inside it."""

import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

# Ctrl-C while modules are being imported ends the process, without a traceback.
_BEFORE = signal.getsignal(signal.SIGINT)
if _BEFORE is signal.default_int_handler:
    with suppress(ValueError):  # another thread imports this: only the main one may
        signal.signal(signal.SIGINT, signal.SIG_DFL)

import click

from headcount import __version__
from headcount.commands.console import Group, exit_on_findings, need_extra, write_reports
from headcount.commands.conversion_options import (
    CONVERSION,
    SWEEP,
    conversion_options,
    evaluation_options,
    sweep_options,
    uptraining_options,
)
from headcount.commands.options import (
    AUDIT_HELP,
    PATH,
    audit_options,
    output_options,
    plan_options,
    reconcile_options,
    serving_options,
    workload_options,
)
from headcount.commands.together import check_together
from headcount.convert.signals import exit_at_once, on_signals

if _BEFORE is signal.default_int_handler:
    with suppress(ValueError):
        signal.signal(signal.SIGINT, _BEFORE)

HELP_OPTIONS = {"help_option_names": ["-h", "--help"]}

if TYPE_CHECKING:
    from headcount.audit.several import Look


@click.group(cls=Group, context_settings=HELP_OPTIONS)
@click.version_option(__version__, prog_name="headcount")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
def main(debug: bool) -> None:
    """Count attention heads and what they cost: audit, plan, convert and evaluate models.

    Exit status of every command: 0 fine, 1 a finding at or above --fail-on or a result that is not
    finite, 2 wrong use or unreadable input, 3 a failure while writing, 128 + N on signal N (130).
    """


@main.command("audit", help=AUDIT_HELP, context_settings=HELP_OPTIONS)
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@workload_options
@audit_options
@output_options
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
    from headcount.audit.several import audit_all
    from headcount.model.sizes import AuditRequest

    reports, failed = audit_all(
        models,
        AuditRequest(**workload),
        config=config,
        strict=strict,
        select=select,
        ignore=ignore,
        compare=form in ("table", "markdown", "html"),
        more=_looks(scan, verify),
    )
    write_reports(reports, form, output)
    if failed:
        sys.exit(2)
    exit_on_findings(reports, fail_on)


def _looks(scan: bool, verify: bool) -> "Look | None":
    """What the heavy half adds to the report of an audit; None: nothing. Raises HeadcountError."""
    if not (scan or verify):
        return None
    need_extra("--scan" if scan else "--verify")
    from headcount.convert.looks import look

    return lambda audit, request: look(audit, request, scan=scan, verify=verify)


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
    from headcount.model.sizes import AuditRequest

    report = diff_report(audit_model(a), audit_model(b), AuditRequest(**workload))
    write_reports([report], form, output)
    if exit_code and not report.document["same"]:
        sys.exit(1)


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
    from headcount.commands.lists import models_report

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
    from headcount.commands.lists import families_report

    write_reports([families_report(text)], form, output)


@main.command("devices")
@output_options
def devices(form: str, output: Path | None) -> None:
    """List the accelerators that `plan` knows, with usable memory and bandwidth.

    \b
    Example:
      headcount devices --format markdown
    """
    from headcount.commands.lists import devices_report

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
    from headcount.commands.lists import rules_report

    write_reports([rules_report()], form, output)


@main.command("plan")
@click.argument("model")
@click.option("--device", metavar="NAME|SIZE", help="Such as h100 (`headcount devices`) or 80GiB.")
@workload_options
@plan_options
@serving_options
@output_options
def plan(model: str, form: str, output: Path | None, **options: Any) -> None:
    """Say what serving MODEL takes in memory, and what fits where.

    Weights, KV cache and overhead are held against DEVICE; without one, against every device. With
    --engine it is planned as that engine accounts, to be held against its log.

    \b
    Example:
      headcount plan llama-3-8b --device h100 --context 8k
      headcount plan llama-3-70b --tp 4 --kv-dtype fp8 --format markdown
      headcount plan qwen3-8b --device l40s --engine vllm --engine-version 0.11.0
      headcount plan qwen3-32b --target-users 32 --context 16k
      headcount plan qwen3-8b --device a100-40gb --context 32k --require "concurrency>=4"
    """
    from headcount.plan.command import plan_command

    answer = plan_command(model, with_charts=form == "html", **options)
    write_reports([answer.report], form, output)
    if not answer.holds:
        sys.exit(1)


@main.command("reconcile")
@click.argument("log", metavar="LOG")
@reconcile_options
@click.option("--exit-code", is_flag=True, help="Exit with 1 if a figure disagrees.")
@output_options
def reconcile(log: str, exit_code: bool, form: str, output: Path | None, **options: Any) -> None:
    """Hold the start-up log of vLLM or SGLang against what the same start would give by the rules.

    LOG is a file, or - for standard input; a few lines of it suffice. Tokens, blocks, concurrency,
    weights and available memory are recomputed; what disagrees is explained. What the log does not
    say can be given.

    \b
    Example:
      vllm serve Qwen/Qwen3-8B 2>&1 | tee start.log
      headcount reconcile start.log --device a100-40gb
      headcount reconcile - --model llama-3.1-8b --engine-version 0.10.1 < fragment.log
    """
    from headcount.plan.reconcile.command import reconcile_log

    answer = reconcile_log(log, options)
    write_reports([answer.report], form, output)
    if exit_code and not answer.agrees:
        sys.exit(1)


@main.command("convert")
@click.argument("source", required=False)
@click.argument("target", type=PATH, required=False)
@conversion_options
@sweep_options
@evaluation_options
@output_options
def convert(
    source: str | None,
    target: Path | None,
    families: bool,
    dry_run: bool,
    evaluates: bool,
    checks: bool,
    allow_pickle: bool,
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Turn the model SOURCE into one with fewer K/V heads, in folder TARGET.

    SOURCE is a folder, or org/name[@revision] of the Hugging Face Hub. The plan is made and checked
    first. Then everything that does not change is copied byte for byte, and K/V heads are merged,
    tensor by tensor. TARGET appears when it is complete and its audit is clean; a run that was
    killed is resumed by the next one.

    \b
    --quality takes rungs of the ladder of docs/methods.md at once:
      fast  --method merge --grouping similar: from the weights alone, seconds a layer at most
      good  and --refit mlp: a few forward passes of --calibration, one layer in memory
      best  and --reconstruct 200: also 200 steps of training a layer, many times as long

    \b
    Example:
      headcount convert ./mha ./gqa --kv-heads 8 --dry-run
      headcount convert org/name ./gqa --kv-heads 8 --dtype bfloat16 --max-shard-size 5GB
      headcount convert ./mha ./gqa --kv-heads 8 --quality good --calibration prose.txt
      headcount convert ./mha ./gqa --kv-heads 8 --evaluate --text prose.txt
      headcount convert ./mha --sweep 8,4,2,1
      headcount convert --families
    """
    check_together(click.get_current_context())
    if families:
        from headcount.convert.families import families_report

        write_reports([families_report()], form, output)
        return
    grid = {name: options.pop(name) for name in SWEEP}
    wanted = options["num_key_value_heads"] is not None and target is not None
    if source is None or not (wanted or grid["counts"]):
        raise click.UsageError("SOURCE, TARGET and --kv-heads are needed (or --families alone)")
    with on_signals(exit_at_once):
        need_extra()
        from headcount.convert.command import convert_model
        from headcount.evaluate.sweep.command import sweep_model

        request = {name: options.pop(name) for name in CONVERSION}
        both: dict[str, Any] = {
            "allow_pickle": allow_pickle,
            "output": output,
            "write": lambda reports: write_reports(reports, form, output),
        }
        if grid["counts"]:
            sweep_model(source, target, request, options, **grid, **both)
            return
        assert target is not None
        evaluation = options if evaluates else None
        convert_model(source, target, request, evaluation, checks=checks, dry_run=dry_run, **both)


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
        from headcount.convert.report_path import check_report_path
        from headcount.evaluate.command import run_evaluation

        check_report_path(output, [Path(folder) for folder in (model, against) if folder])
        write_reports([run_evaluation(model, against, **request)], form, output)


@main.command("uptrain")
@click.argument("converted")
@uptraining_options
@output_options
def uptrain(
    converted: str,
    teacher: str,
    texts: tuple[Path, ...],
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Train the model CONVERTED, a folder, to predict what ORIGINAL predicts.

    First attention and norms learn, then all weights, from the logits of ORIGINAL on the text. The
    result is measured on text that was held out, and lies in a new folder; both models are only
    read. A run that was stopped goes on with its last checkpoint when it is started again.

    \b
    Example:
      headcount uptrain ./gqa --teacher ./mha --text prose.txt --output-dir ./gqa-healed
      accelerate launch -m headcount uptrain ./gqa --teacher ./mha --text prose.txt
    """
    with on_signals(exit_at_once):
        need_extra()
        from headcount.uptrain.command import uptrain_model

        uptrain_model(
            converted,
            teacher,
            texts,
            output=output,
            write=lambda reports: write_reports(reports, form, output),
            **options,
        )
