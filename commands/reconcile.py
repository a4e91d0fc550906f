"""`reconcile`: engines' start-up logs held against what the same starts give by the rules."""

import sys
from pathlib import Path
from typing import Any

import click

from headcount.plan.engines.registry import started

from .console import Command, write_reports
from .options.added import added_options
from .options.completion import complete_device, complete_model
from .options.engine import LLAMA_CPP_OPTIONS, start_options
from .options.names import CONTEXT, DEVICE, KV_DTYPE, TP, UTILISATION
from .options.shared import (
    AT_LEAST_1,
    TOKENS,
    FiniteRange,
    details_option,
    output_options,
    stack,
)

_START_OPTIONS = stack(
    click.option(
        "--model",
        shell_complete=complete_model,
        help="Where the log names none, or one that is not known.",
    ),
    click.option(
        *DEVICE,
        metavar="NAME|SIZE",
        shell_complete=complete_device,
        help="Such as h100, or its memory as logged.",
    ),
    click.option(*CONTEXT, type=TOKENS, help="The longest request, in tokens."),
    click.option(*TP, type=AT_LEAST_1, help="Devices that share the model."),
    click.option("--dtype", help="Element type that the weights were loaded as."),
    click.option(*KV_DTYPE, help="Element type of the cache."),
    click.option(*UTILISATION, type=FiniteRange(0, 1, min_open=True)),
    start_options(started()),
    LLAMA_CPP_OPTIONS,
    added_options,
)


@click.command(cls=Command)
@click.argument("logs", metavar="LOG...", nargs=-1, required=True)
@_START_OPTIONS
@click.option(
    "--exit-code", is_flag=True, help="Exit with 1 if a figure disagrees, or a start failed."
)
@details_option
@output_options
def reconcile(
    logs: tuple[str, ...], exit_code: bool, form: str, output: Path | None, **options: Any
) -> None:
    """Hold the start-up log of an engine against what the same start would give by the rules.

    LOG is a file, a folder of them, or - for standard input, of vLLM, SGLang, llama.cpp, Ollama or
    TensorRT-LLM; a few lines of it suffice. Of a start that failed it says what was needed, what
    there was, which term was too large, the longest context and the smallest change that would do,
    with its command. Else tokens, blocks, concurrency, weights and available memory are recomputed,
    and what disagrees is explained. What the log does not say can be given. Several logs give a
    table.

    \b
    Example:
      vllm serve Qwen/Qwen3-8B 2>&1 | tee start.log
      headcount reconcile start.log --device a100-40gb
      headcount reconcile - --model llama-3.1-8b < fragment.log
      headcount reconcile logs/ --format json
    """
    from headcount.plan.reconcile.command import reconcile_logs

    answer = reconcile_logs(logs, options)
    write_reports([answer.report], form, output)
    if exit_code and not answer.agrees:
        sys.exit(1)
