"""`uptrain`: heal a converted model by training it to predict what its original predicts."""

from pathlib import Path
from typing import Any

import click

from headcount.running.asked_for import need_files, need_folder
from headcount.running.extra import need_extra
from headcount.running.signals import exit_at_once, exit_cleanly, on_signals
from headcount.uptrain.uptrain_request import COMPUTE_DTYPES, DECAYS, UptrainRequest, check_read

from .console import Command, write_reports
from .launched import in_main_process
from .options.shared import (
    AT_LEAST_0,
    AT_LEAST_1,
    PATH,
    TOKENS,
    FiniteRange,
    details_option,
    options_of,
    output_options,
    stack,
)
from .output.report_path import check_report_path

_option = options_of(UptrainRequest)
_SHARE = FiniteRange(0, 1)
_WEIGHT = FiniteRange(min=0)
_SCHEDULE = stack(
    _option("--steps", AT_LEAST_1),
    _option(
        "--phase-one",
        _SHARE,
        "Share of the steps in which only attention and norms learn; then all weights do.",
    ),
    _option(
        "--learning-rate",
        FiniteRange(min=0, min_open=True),
        "The highest of AdamW; 1e-4 or less for billions of parameters.",
    ),
    _option("--warmup", AT_LEAST_0, "Steps in which the rate rises, at the start of each phase."),
    _option("--decay", click.Choice(DECAYS)),
    _option("--batch-size", AT_LEAST_1, "Rows (or pairs) of a step, in all processes together."),
    click.option(
        "--sequence-length",
        type=TOKENS,
        help="Tokens of a row, or at most of a pair; default: up to 1,024.",
    ),
    _option(
        "--gradient-accumulation",
        AT_LEAST_1,
        "Parts of a batch that a process computes one after the other.",
    ),
)
_LOSS = stack(
    _option(
        "--temperature",
        FiniteRange(min=0, min_open=True),
        "Of both models' logits in the KL divergence.",
    ),
    _option(
        "--cross-entropy",
        _WEIGHT,
        "Weight of the tokens that are there to predict, beside the KL divergence.",
    ),
    _option(
        "--hidden-loss", _WEIGHT, "Weight of the relative squared error of every layer's output."
    ),
)
_OPTIONS = stack(
    click.option("--teacher", required=True, metavar="ORIGINAL", help="The original, in a folder."),
    click.option(
        "--text",
        "texts",
        type=PATH,
        multiple=True,
        help="UTF-8; may be given several times.",
    ),
    click.option(
        "--pairs",
        type=PATH,
        multiple=True,
        help="Sources and targets for an encoder-decoder, in place of a text.",
    ),
    click.option(
        "--output-dir", type=PATH, help="The folder to make; default: CONVERTED-uptrained."
    ),
    _SCHEDULE,
    _LOSS,
    _option(
        "--held-out",
        TOKENS,
        "Tokens to measure on, from the ends of the files: at most a tenth of them.",
    ),
    click.option("--tokenizer", type=PATH, help="A folder; default: that of CONVERTED."),
    click.option(
        "--dtype",
        type=click.Choice(COMPUTE_DTYPES),
        help="To compute in; weights are trained in float32. Default: as the launcher says.",
    ),
    click.option(
        "--torch-device",
        "device",
        help="cpu, cuda, or auto: the original over all; default: cuda if there.",
    ),
    click.option(
        "--shard",
        is_flag=True,
        help="The processes of a launcher share weights and optimizer (FSDP2).",
    ),
    _option("--seed", int, "Of the order of rows."),
    _option("--checkpoint-every", AT_LEAST_0, "Steps; 0: only between the phases."),
    _option(
        "--resume/--no-resume",
        words="Whether to go on with the checkpoints of a run that was killed.",
    ),
)


@click.command(cls=Command)
@click.argument("converted")
@_OPTIONS
@output_options
@details_option
@in_main_process
def uptrain(
    converted: str,
    teacher: str,
    texts: tuple[Path, ...],
    pairs: tuple[Path, ...],
    form: str,
    output: Path | None,
    **options: Any,
) -> None:
    """Train the model CONVERTED, a folder, to predict what ORIGINAL predicts.

    First attention and norms learn, then all weights, from the logits of ORIGINAL on the text. The
    result is measured on text that was held out, and lies in a new folder; both models are only
    read. A run that was stopped goes on with its last checkpoint when it is started again.

    An encoder-decoder (T5, BART, Whisper) learns pairs of a source and a target, or, of a text,
    what ORIGINAL says of each of its lines.

    \b
    Example:
      headcount uptrain ./gqa --teacher ./mha --text prose.txt
      headcount uptrain ./t5-gqa --teacher ./t5 --pairs pairs.tsv
      torchrun --nproc_per_node 4 -m headcount uptrain ./gqa \\
        --teacher ./mha --text prose.txt --shard
    """
    with on_signals(exit_at_once):
        need_extra()
        need_folder(converted)
        need_folder(teacher)
        need_files((*texts, *pairs))
        target = options.get("output_dir")
        read = [Path(converted), Path(teacher)]
        check_report_path(output, read if target is None else [*read, target])
        request = UptrainRequest(
            converted=converted, teacher=teacher, texts=texts, pairs=pairs, **options
        )
        check_read(request)
        from headcount.uptrain.uptrain_report import uptraining_report
        from headcount.uptrain.uptraining import uptrain

        with on_signals(exit_cleanly):
            report = uptrain(request)
        write_reports([uptraining_report(report)], form, output)
