"""`heads`: what each attention head of a model does."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headcount.heads.heads_request import HeadsRequest, parse_thresholds
from headcount.running.signals import exit_at_once, on_signals

from .console import Command, need_extra, write_reports
from .options import AT_LEAST_1, TOKENS, options_of, output_options, stack
from .report_path import check_report_path

if TYPE_CHECKING:
    from headcount.report.report import Report

_option = options_of(HeadsRequest)
_OPTIONS = stack(
    click.option(
        "--tokens",
        type=TOKENS,
        help="Random tokens of a sequence, which are then repeated; default: up to 64.",
    ),
    _option("--sequences", AT_LEAST_1, "How many such sequences."),
    _option("--batch-size", AT_LEAST_1, "Sequences that are run at a time."),
    _option("--seed", int, "Of the random tokens."),
    click.option(
        "--thresholds",
        metavar="NAME=VALUE,…",
        help="Excess over uniform attention that makes a role: induction=0.3,copying=0.6.",
    ),
    click.option("--dtype", help="Element type to load the weights as; default: as stored."),
    click.option("--torch-device", "device", help="cpu, cuda, cuda:1…; default: cuda if there."),
)


@click.command(cls=Command)
@click.argument("model")
@_OPTIONS
@output_options
def heads(
    model: str, thresholds: str | None, form: str, output: Path | None, **request: Any
) -> None:
    """Say what each head of MODEL does: previous token, induction, duplicate token, first token.

    MODEL is a folder, or org/name[@revision] of the Hugging Face Hub. It reads random tokens twice,
    and each attention's pattern is reduced to scores as soon as it is computed.

    \b
    Example:
      headcount heads ./model
      headcount heads ./model -o heads.html
    """
    limits = parse_thresholds(thresholds)
    with on_signals(exit_at_once):
        need_extra()
        check_report_path(output, [Path(model)])
        report = run_atlas(HeadsRequest(model=model, thresholds=limits, **request))
        write_reports([report], form, output)


def run_atlas(request: HeadsRequest) -> "Report":
    """The report of an atlas; warnings go to stderr. Raises HeadcountError."""
    from headcount.heads.atlas_report import atlas_report
    from headcount.heads.atlas_run import make_atlas

    with _folder_of(request.model) as (folder, name):
        atlas = make_atlas(request, folder, name, progress=True)
    for warning in atlas.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    return atlas_report(atlas)


@contextmanager
def _folder_of(model: str) -> Iterator[tuple[Path, str]]:
    """The folder that `model` names, and how reports name it. Raises HeadcountError."""
    from headcount.convert.hub_source import hub_source
    from headcount.sources.path import check_name
    from headcount.sources.target import is_hub_id

    check_name(model)
    if not is_hub_id(model):
        yield Path(model), model
        return
    with hub_source(model, whole=True) as found:
        yield found
