"""The options of `convert`."""

from dataclasses import fields

import click

from headcount.convert.latent.size import BY_LAYER
from headcount.convert.merge.ladder import (
    GROUPINGS,
    QUALITIES,
    REFITS,
)
from headcount.convert.plan.request import (
    CALIBRATION_ROW_TOKENS,
    CALIBRATION_TOKENS,
    ELEMENT_TYPES,
    FORMAT_CHOICES,
    HOME_CHOICES,
    METHODS,
    ConversionRequest,
    Format,
)
from headcount.report import FORMATS
from headcount.running.asked_for import BUILTIN

from .options.shared import (
    AT_LEAST_0,
    AT_LEAST_1,
    PATH,
    SIZE,
    TOKENS,
    WholeNumber,
    details_option,
    options_of,
    output_option,
    report_format,
    screen_options,
    stack,
)

# The options that decide the conversion.
_NO_OPTION = ("source", "target", "source_name", "source_made", "format")
CONVERSION = (
    *(field.name for field in fields(ConversionRequest) if field.name not in _NO_OPTION),
    "quality",
)
_option = options_of(ConversionRequest)
conversion_options = stack(
    click.option(
        "--kv-heads",
        "num_key_value_heads",
        metavar="N",
        help="K/V heads of the result; 1 makes it MQA. Of single layers: 0-15:8,16-31:4.",
    ),
    click.option(
        "--prune-heads",
        "pruned_heads",
        metavar="N|SHARE|LIST",
        help="Query heads to take from each layer, the least important: 2, or 1/4; or by their"
        " numbers: 0-3:1+5,4:0+2. In a sweep several: 0,1/4,1/2.",
    ),
    click.option(
        "--across-layers",
        is_flag=True,
        help="Count those heads over all layers: some lose more, others fewer.",
    ),
    click.option(
        "--latent",
        metavar="SIZE",
        is_flag=False,
        flag_value=BY_LAYER,
        help="Cache one latent a token and layer in place of keys and values: of so many elements"
        " (128, or 0-3:64,4-7:128), of a share of what is kept now (1/4), or bytes a token of all"
        " layers (48KiB). Without SIZE: as --budget leaves to each layer.",
    ),
    click.option(
        "--budget",
        "cache_budget",
        metavar="BYTES|SHARE",
        help="What the cache may take a token (48KiB), or of what it takes now (1/4): each layer"
        " gets the K/V heads, or with --latent the rank, that cost the model least. By the loss on"
        " --calibration, or by the weights alone.",
    ),
    click.option("--families", is_flag=True, help="List the types that can be converted."),
    click.option(
        "--quality",
        type=click.Choice([*QUALITIES]),
        help="Rungs of the ladder, see above; options that are given come first.",
    ),
    click.option(
        "--method",
        type=click.Choice(METHODS),
        help="How the K/V heads of a group become one; default: mean.",
    ),
    click.option(
        "--grouping",
        type=click.Choice(GROUPINGS),
        help="Which heads become one: neighbours (the default), or those that are alike.",
    ),
    click.option(
        "--calibration",
        metavar=f"FILE|{BUILTIN}",
        help="UTF-8 text that SOURCE is run on, for the rungs that need it;"
        f" {BUILTIN}: our sample.",
    ),
    click.option(
        "--calibration-tokens",
        type=TOKENS,
        help=f"Tokens of it that are read at most; default: {CALIBRATION_TOKENS:,}.",
    ),
    click.option(
        "--calibration-row-tokens",
        type=TOKENS,
        help="Tokens that it is read at a time, at most, so that attention looks back so far;"
        f" default: {CALIBRATION_ROW_TOKENS}.",
    ),
    click.option(
        "--calibration-device",
        metavar="DEVICE",
        help="Where layers run to be fitted: cuda, cuda:1…; default: cpu, where every machine"
        " writes the same numbers.",
    ),
    click.option(
        "--temperature/--no-temperature",
        default=None,
        help="Scale the scores of each query head to be as sharp as before.",
    ),
    click.option(
        "--refit",
        type=click.Choice(REFITS),
        help="Fit anew: nothing (the default), o, or o and the MLP's last projection.",
    ),
    click.option(
        "--reconstruct",
        type=AT_LEAST_0,
        metavar="STEPS",
        help="Steps of gradient descent on each layer's q, k, v and o; default: 0.",
    ),
    _option("--seed", int, "Of what is drawn at random."),
    _option(
        "--home",
        click.Choice(HOME_CHOICES),
        "The class of the result: its own, another, or a modelling file of ours; of latents, such"
        " a file or, with mla, DeepSeek-V3's.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(ELEMENT_TYPES),
        help="Element type of the result; default: as stored. q8_0 is of GGUF alone.",
    ),
    click.option(
        "--max-shard-size", type=SIZE, help="Of a file, such as 5GB; default: SOURCE's files."
    ),
    click.option(
        "--allow-pickle",
        is_flag=True,
        help="Load .bin files, where there is nothing else, in a process of their own.",
    ),
    click.option(
        "--merge-adapter",
        is_flag=True,
        help="Add the LoRA adapter that lies beside the weights to them first.",
    ),
    _option("--workers", WholeNumber(1, 64), "Threads that merge heads while others are written."),
    click.option(
        "--overwrite",
        is_flag=True,
        help="Replace an earlier conversion with a whole one.",
    ),
    click.option("--dry-run", is_flag=True, help="Print the plan and write nothing."),
    click.option(
        "--check", "checks", is_flag=True, help="Then run SOURCE and TARGET on a few tokens."
    ),
    click.option(
        "--evaluate", "evaluates", is_flag=True, help="Then evaluate TARGET against SOURCE."
    ),
)
SWEEP = ("counts", "methods", "budget", "by_layer")
sweep_options = stack(
    click.option(
        "--sweep",
        "counts",
        metavar="8,4,latent:1/4",
        help="Convert to each of these, evaluate, print the trade-off, write nothing… Numbers of"
        " K/V heads and latents: latent:1/4, or mla:1/4 as --home mla makes them.",
    ),
    click.option(
        "--sweep-methods",
        "methods",
        metavar="NAMES",
        help="Of a sweep: methods and qualities, fast and fast+text (by --calibration) say;"
        " default: what the other options say.",
    ),
    click.option(
        "--max-delta-loss",
        "budget",
        type=float,
        metavar="NATS",
        help="…but for the smallest cache of a sweep that adds at most this to the loss, and whose"
        " KL divergence is at most this.",
    ),
    click.option(
        "--by-layer", is_flag=True, help="In a sweep also: what each layer alone adds to the loss."
    ),
)

verify_options = stack(
    click.option(
        "--verify",
        "verified",
        type=PATH,
        metavar="OUT",
        help="Hold the finished OUT against its record and, if given, against SOURCE.",
    ),
    click.option(
        "--sample",
        type=AT_LEAST_1,
        metavar="N",
        help="Of --verify: only N tensors, drawn by --seed.",
    ),
)


def _formats(
    ctx: click.Context, param: click.Parameter, value: tuple[str, ...]
) -> tuple[Format, str]:
    """The format of the result, and that of the report: of each the one that is named, if any."""
    results = [name for name in FORMAT_CHOICES if name in value]
    reports = [name for name in value if name in FORMATS]
    if len(results) > 1 or len(set(reports)) > 1:
        raise click.BadParameter("names two formats of one thing", ctx, param)
    named = reports[0] if reports else None
    return (
        results[0] if results else FORMAT_CHOICES[0],
        report_format(named, ctx.params.get("output")),
    )


format_options = stack(
    click.option(
        "--format",
        "formats",
        type=click.Choice([*FORMAT_CHOICES, *FORMATS]),
        multiple=True,
        callback=_formats,
        help="Of the result: safetensors (the default), or gguf, a file for llama.cpp. Of the"
        " report: the others; default: as the name of the --output file says, else table. May be"
        " given twice.",
    ),
    output_option,
    screen_options,
    details_option,
)
