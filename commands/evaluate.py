"""`evaluate`: what a conversion did to a model, or what one model is like."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headcount.evaluate.errors import EvaluationFailedError
from headcount.evaluate.evaluation_request import BEHAVIOURS, EvaluationRequest
from headcount.model.errors import HeadcountError
from headcount.running.asked_for import need_files, need_folder
from headcount.running.extra import need_extra
from headcount.running.signals import exit_at_once, on_signals

from .console import Command, write_reports
from .launched import in_main_process
from .options.shared import (
    AT_LEAST_1,
    PATH,
    TOKENS,
    details_option,
    options_of,
    output_options,
    stack,
)
from .output.report_path import check_report_path
from .output.telling import say_if_without_charts, say_warnings

if TYPE_CHECKING:
    from headcount.report.report import Report

_option = options_of(EvaluationRequest)
evaluation_options = stack(
    click.option("--text", type=PATH, help="UTF-8 text; default: a sample of prose."),
    click.option("--pairs", type=PATH, help="Sources and targets for an encoder-decoder."),
    _option(
        "--documents",
        words="Each line of the text, or file of a folder, is a sequence.",
        shown=False,
    ),
    _option("--max-tokens", TOKENS, "Tokens to score at most."),
    click.option("--window", type=TOKENS, help="Tokens a window; default: up to 1,024."),
    click.option("--stride", type=TOKENS, help="Tokens between windows; default: half a window."),
    click.option("--tokenizer", type=PATH, help="A folder; default: the model's own."),
    click.option(
        "--torch-device",
        "device",
        help="cpu, cuda, cuda:1…, or auto: spread over all; default: cuda if there.",
    ),
    _option("--behaviour", click.Choice(BEHAVIOURS), "How much to ask of the use of context."),
    _option("--roles/--no-roles", words="Whether to compare the roles of heads.", shown=False),
    _option("--speed/--no-speed", words="Whether to measure speed.", shown=False),
)


@click.command(cls=Command)
@click.argument("model")
@click.option("--against", metavar="ORIGINAL", help="The model to compare with, in a folder.")
@click.option("--dtype", help="Element type to load the weights as; default: as stored.")
@evaluation_options
@click.option("--tasks", help="Tasks of lm-evaluation-harness, as NAME,NAME (extra `tasks`).")
@click.option("--task-folder", type=PATH, help="A folder with tasks of your own.")
@click.option("--task-limit", type=AT_LEAST_1, help="Questions of each task; default: all.")
@click.option("--card", is_flag=True, help="Write the figures into MODEL's card (README.md).")
@output_options
@details_option
@in_main_process
def evaluate(
    model: str,
    against: str | None,
    tasks: str | None,
    card: bool,
    form: str,
    output: Path | None,
    **request: Any,
) -> None:
    """Measure MODEL, a folder: loss, perplexity, cache bytes and speed.

    With ORIGINAL also the KL divergence and top-1 agreement between the two, and whether what
    stands in the context is still copied and recalled (--behaviour).

    \b
    Example:
      headcount evaluate ./gqa --against ./mha --text prose.txt
    """
    with on_signals(exit_at_once):
        need_extra()
        check_report_path(output, [Path(folder) for folder in (model, against) if folder])
        for folder in filter(None, (model, against)):
            need_folder(folder)
        need_files((request["text"], request["pairs"]))
        if request["behaviour"] != "none":
            say_if_without_charts(form)
        names = tuple(name.strip() for name in (tasks or "").split(",") if name.strip())
        report, failure = run_evaluation(model, against, card=card, tasks=names, **request)
        write_reports([report], form, output)
        if failure is not None:
            raise failure


def run_evaluation(
    model: str,
    against: str | None,
    *,
    card: bool = False,
    said: tuple[str, ...] = (),
    **request: Any,
) -> "tuple[Report, HeadcountError | None]":
    """Evaluates, and prints warnings on stderr; `said` are further ones of its report, which stand
    there already. `card`: the figures go into the model's card, too.
    Returns the report, and the error to end with once it is written where the numbers are worth
    nothing. Raises HeadcountError."""
    from headcount.evaluate.evaluated_card import check_card, write_into_card
    from headcount.evaluate.evaluation import evaluate
    from headcount.evaluate.evaluation_report import evaluation_report

    if card:
        check_card(Path(model))
    evaluation = evaluate(EvaluationRequest(model=model, against=against, **request))
    say_warnings(evaluation.warnings)
    evaluation = replace(evaluation, warnings=(*said, *evaluation.warnings))
    failure = evaluation.failure
    if card and failure is None:
        write_into_card(Path(model), evaluation)
    failed = None if failure is None else EvaluationFailedError(failure)
    return evaluation_report(evaluation), failed
