"""`heads`: what each attention head of a model does."""

from pathlib import Path
from typing import Any

import click

from headcount.heads.heads_request import HeadsRequest, parse_thresholds
from headcount.heads.importance.importance_request import ImportanceRequest
from headcount.running.asked_for import need_folder, need_text
from headcount.running.extra import need_extra
from headcount.running.signals import exit_at_once, on_signals
from headcount.sources.target import is_hub_id

from .console import Command, write_reports
from .launched import in_main_process
from .options.shared import AT_LEAST_1, TOKENS, list_options, options_of, stack
from .output.report_path import check_report_path
from .output.telling import say_warnings

# What only one of the two reports reads.
_OF_TEXT = ("exact", "text", "max_tokens")
_OF_ATLAS = ("against", "tokens", "sequences", "batch_size", "thresholds", "dtype")
_option = options_of(HeadsRequest)
_of_text = options_of(ImportanceRequest)
_OPTIONS = stack(
    click.option(
        "--against",
        metavar="ORIGINAL",
        help="The model that MODEL was made from: which roles its heads kept, lost and gained.",
    ),
    click.option(
        "--tokens",
        type=TOKENS,
        help="Random tokens of a sequence, which are then repeated; default: up to 64.",
    ),
    _option("--sequences", AT_LEAST_1, "How many such sequences."),
    _option("--batch-size", AT_LEAST_1, "Sequences that are run at a time."),
    _option("--seed", int, "Of what is drawn: random tokens, the order of a text's rows."),
    click.option(
        "--thresholds",
        metavar="NAME=VALUE,…",
        help="Excess over uniform attention that makes a role: induction=0.3,copying=0.6.",
    ),
    click.option(
        "--importance",
        is_flag=True,
        help="Say what each head is worth to the loss on a text instead.",
    ),
    click.option("--exact", is_flag=True, help="Of --importance: also by a pass a head."),
    _of_text("--text", str, "Of --importance: a UTF-8 file."),
    _of_text("--max-tokens", TOKENS, "Of --importance: how much of it is read."),
    click.option("--dtype", help="Element type to load the weights as; default: as stored."),
    click.option(
        "--torch-device",
        "device",
        help="cpu, cuda, cuda:1…, or auto: spread over all; default: cuda if there.",
    ),
)


@click.command(cls=Command)
@click.argument("model")
@_OPTIONS
@list_options
@in_main_process
def heads(
    model: str,
    against: str | None,
    thresholds: str | None,
    importance: bool,
    form: str,
    output: Path | None,
    **request: Any,
) -> None:
    """Say what each head of MODEL does: previous token, induction, duplicate token, first token.

    MODEL and ORIGINAL are folders, or org/name[@revision] of the Hugging Face Hub. A model reads
    random tokens twice, and each attention's pattern is reduced to scores when it is computed.

    \b
    Example:
      headcount heads ./model
      headcount heads ./model -o heads.html
      headcount heads ./gqa --against ./mha
      headcount heads ./model --importance --exact --text prose.txt
    """
    _check_together(click.get_current_context(), importance)
    limits = parse_thresholds(thresholds)
    text = {name: request.pop(name) for name in _OF_TEXT}
    with on_signals(exit_at_once):
        need_extra()
        check_report_path(output, [Path(one) for one in (model, against) if one])
        for one in filter(None, (model, against)):
            if not is_hub_id(one):
                need_folder(one)
        if text["text"] is not None:
            need_text(text["text"], "--text")
        from headcount.library.head_atlases import heads_report, importance_report_of

        if importance:
            both = {name: request[name] for name in ("seed", "device")}
            asked = ImportanceRequest(model=model, **both, **text)
            report, warnings = importance_report_of(asked, progress=True)
        else:
            wanted = HeadsRequest(model=model, thresholds=limits, **request)
            report, warnings = heads_report(wanted, against, progress=True)
        say_warnings(warnings)
        write_reports([report], form, output)


def _check_together(context: click.Context, importance: bool) -> None:
    """Raises UsageError for options on the command line that have no say in what is asked for."""
    useless = _OF_ATLAS if importance else _OF_TEXT
    why = "does not go with --importance" if importance else "is for --importance: add that"
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.name in useless and source is click.core.ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{parameter.opts[0]} {why}, or leave it out", ctx=context)
