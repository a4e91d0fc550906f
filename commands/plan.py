"""`plan`: what serving a model takes in memory, and what fits where."""

import sys
from pathlib import Path
from typing import Any

import click

from headcount.model.text import printable
from headcount.plan.engines.registry import ENGINES

from .console import Command, write_reports
from .options.added import added_options
from .options.completion import complete_device, complete_model
from .options.engine import LLAMA_CPP_OPTIONS, start_options
from .options.names import DEVICE, KV_MEMORY, TP, USERS, UTILISATION
from .options.shared import (
    AT_LEAST_1,
    COUNT,
    PATH,
    SIZE,
    Counts,
    FiniteRange,
    details_option,
    output_options,
    stack,
    workload_options,
)
from .output.telling import say_if_without_charts

_MODEL_OPTIONS = stack(
    click.option(
        "--dtype",
        help="What the weights are loaded as: bf16, fp8, awq, q4_k_m…; default: as stored. Below 16"
        " bit that is the linear layers: int4 has a scale for each 128 weights, and embeddings and"
        " head stay at 16 bit.",
    ),
    click.option(
        *TP,
        type=Counts(),
        show_default="1",
        help="Devices that share the model (tensor parallel); of several, as in 1,2,4,8, each is"
        " planned and the best looked for.",
    ),
    click.option(
        *UTILISATION,
        type=FiniteRange(0, 1, min_open=True),
        help="Share of the usable memory that may be taken; default: 0.9, or the engine's.",
    ),
    click.option(
        "--prune-heads",
        metavar="N|SHARE",
        help="What-if rows without so many query heads of each layer: 2, or 1/4.",
    ),
    click.option("--parameters", type=COUNT, help="Such as 7b, where the config does not tell."),
)
_SERVING_OPTIONS = stack(
    click.option(
        *KV_MEMORY,
        type=SIZE,
        help="Cache memory of each device, as an engine logs.",
    ),
    click.option(
        "--require", metavar="WHAT", help="Exit with 1 without: fits,context>=32k,concurrency>=8."
    ),
    click.option(
        *USERS,
        type=AT_LEAST_1,
        help="Search devices, tp x pp and replicas that serve so many requests at once.",
    ),
    click.option(
        "--prices",
        type=PATH,
        metavar="FILE",
        help="CSV or JSON of a device's name and its price an hour: choose by cost.",
    ),
    start_options(ENGINES),
    LLAMA_CPP_OPTIONS,
    added_options,
    click.option("--static-cache", is_flag=True, help="A static cache (transformers)."),
)


@click.command(cls=Command)
@click.argument(
    "models", nargs=-1, required=True, metavar="MODEL...", shell_complete=complete_model
)
@click.option(
    *DEVICE,
    metavar="NAME|SIZE,...",
    shell_complete=complete_device,
    help="Such as h100 (`headcount devices`) or 80GiB; the best of several is looked for. 4xh100 is"
    " h100 with --tp 4.",
)
@workload_options
@_MODEL_OPTIONS
@_SERVING_OPTIONS
@details_option
@output_options
def plan(models: tuple[str, ...], form: str, output: Path | None, **options: Any) -> None:
    """Say what serving MODEL takes in memory, and what fits where.

    Weights, KV cache and overhead are held against DEVICE; without one, against every device. With
    --engine it is planned as that engine accounts, to be held against its log. Several models, or
    devices, are compared in one table.

    \b
    Example:
      headcount plan llama-3-8b --device h100 --context 8k
      headcount plan llama-3-70b --tp 4 --kv-dtype fp8 --format markdown
      headcount plan qwen3-8b --device l40s --engine vllm --engine-version 0.11.0
      headcount plan qwen3-32b --target-users 32 --context 16k
      headcount plan qwen3-8b --device l40s --require "concurrency>=4"
      headcount plan qwen3-32b llama-3-70b --target-users 64 -o plan.html

    Exit status: 0 fine, 1 if what is required does not hold, or not all users are surely served.
    """
    from headcount.plan.command import plan_command

    say_if_without_charts(form)
    answer = plan_command(*models, form=form, **options)
    write_reports(answer.reports, form, output)
    for reason in answer.reasons:
        click.echo(printable(reason), err=True)
    if answer.failed:
        sys.exit(2)
    if not answer.holds:
        sys.exit(1)
