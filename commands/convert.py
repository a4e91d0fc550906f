"""`convert`: fewer K/V heads."""

from pathlib import Path
from typing import Any

import click

from headcount.convert.plan.request import Format
from headcount.running.asked_for import need_files, need_text, read_twice
from headcount.running.extra import need_extra
from headcount.running.signals import exit_at_once, on_signals

from .console import write_list, write_reports
from .convert_conflicts import check_together
from .convert_headings import ConvertCommand
from .convert_options import (
    CONVERSION,
    SWEEP,
    conversion_options,
    format_options,
    sweep_options,
    verify_options,
)
from .evaluate import evaluation_options
from .launched import in_main_process
from .options.shared import PATH
from .output.telling import say_if_without_charts, say_warnings


@click.command(cls=ConvertCommand)
@click.argument("source", required=False)
@click.argument("target", type=PATH, required=False)
@conversion_options
@sweep_options
@verify_options
@evaluation_options
@format_options
@in_main_process
def convert(
    source: str | None,
    target: Path | None,
    families: bool,
    dry_run: bool,
    evaluates: bool,
    checks: bool,
    allow_pickle: bool,
    merge_adapter: bool,
    verified: Path | None,
    sample: int | None,
    formats: tuple[Format, str],
    output: Path | None,
    **options: Any,
) -> None:
    """Turn the model SOURCE into one with a smaller K/V cache, in folder TARGET: with fewer K/V
    heads, or with latents that keys and values are rebuilt from.

    SOURCE is a folder, or org/name[@revision] of the Hugging Face Hub. The plan is made and checked
    first. Then everything that does not change is copied byte for byte, and K/V heads are merged,
    tensor by tensor. TARGET appears when it is complete and its audit is clean; a run that was
    killed is resumed by the next one.

    \b
    --quality takes rungs of the ladder of docs/methods.md at once:
      fast  --method merge --grouping similar: from the weights alone, seconds
            a layer at most
      good  and --refit mlp: a few forward passes of --calibration, one layer
            in memory
      best  and --reconstruct 200: also 200 steps of training a layer, many
            times as long

    \b
    Example:
      headcount convert ./mha ./gqa --kv-heads 8 --dry-run
      headcount convert org/name ./gqa --kv-heads 8 --max-shard-size 5GB
      headcount convert ./mha ./gqa --kv-heads 8 --quality fast
      headcount convert ./mha ./gqa --kv-heads 8 --evaluate --text prose.txt
      headcount convert ./mha ./gqa --kv-heads 8 --format gguf --dtype q8_0
      headcount convert ./mha ./latent --latent 1/4 --calibration prose.txt
      headcount convert ./mha ./latent --latent --budget 1/4
      headcount convert ./mha ./mla --latent 1/4 --home mla
      headcount convert ./mha --sweep 8,4,2,latent:1/4
      headcount convert ./mha --verify ./gqa
      headcount convert --families
    """
    check_together(click.get_current_context())
    options["format"], form = formats
    if families:
        from headcount.convert.families import families_report

        write_list(families_report(), form, output)
        return
    if verified is not None:
        with on_signals(exit_at_once):
            need_extra()
            from .convert_verify import verify_model

            verify_model(
                verified,
                source,
                sample=sample,
                seed=options["seed"],
                allow_pickle=allow_pickle,
                merge_adapter=merge_adapter,
                output=output,
                write=lambda reports: write_reports(reports, form, output),
            )
        return
    grid = {name: options.pop(name) for name in SWEEP}
    kinds = ("num_key_value_heads", "pruned_heads", "latent", "cache_budget")
    asked = (options[name] for name in kinds)
    is_gguf = options["format"] == "gguf"
    wanted = (is_gguf or any(one is not None for one in asked)) and target is not None
    if source is None or not (wanted or grid["counts"]):
        raise click.UsageError(
            "SOURCE, TARGET and --kv-heads are needed (or --latent, --budget, --prune-heads or"
            " --format gguf; or --families alone)"
        )
    with on_signals(exit_at_once):
        need_extra()
        if options["calibration"] is not None:
            need_text(options["calibration"], "--calibration")
        need_files((options["text"], options["pairs"]))
        if grid["counts"] or evaluates:
            _say_first(options, form, draws=bool(grid["counts"]) or options["behaviour"] != "none")
        from .convert_run import convert_model
        from .convert_sweep import sweep_model

        request = {name: options.pop(name) for name in (*CONVERSION, "format")}
        both: dict[str, Any] = {
            "allow_pickle": allow_pickle,
            "merge_adapter": merge_adapter,
            "output": output,
            "write": lambda reports: write_reports(reports, form, output),
        }
        if grid["counts"]:
            sweep_model(source, target, request, options, **grid, **both)
            return
        assert target is not None
        evaluation = options if evaluates else None
        convert_model(source, target, request, evaluation, checks=checks, dry_run=dry_run, **both)


def _say_first(options: dict[str, Any], form: str, *, draws: bool) -> None:
    """Of conversions that are measured, before the minutes that they may take."""
    if draws:
        say_if_without_charts(form)
    say_warnings(read_twice(options["calibration"], options))
