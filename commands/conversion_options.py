"""The options of the commands that need the extra: convert, evaluate and uptrain."""

import click

from .options import AT_LEAST_1, PATH, SIZE, TOKENS, FiniteRange, stack

LADDER = ("method", "grouping", "temperature", "refit", "reconstruct")
CONVERSION = (
    *("num_key_value_heads", "seed", "home", "dtype", "max_shard_size", "workers", "overwrite"),
    *("calibration", "calibration_tokens", "quality", *LADDER),
)
conversion_options = stack(
    click.option(
        "--kv-heads",
        "num_key_value_heads",
        metavar="N",
        help="K/V heads of the result; 1 makes it MQA. Of single layers: 0-15:8,16-31:4.",
    ),
    click.option("--families", is_flag=True, help="List the types that can be converted."),
    click.option(
        "--quality",
        type=click.Choice(["fast", "good", "best"]),
        help="Rungs of the ladder, see above; options that are given come first.",
    ),
    click.option(
        "--method",
        type=click.Choice(["mean", "renorm", "align", "merge", "first", "medoid", "random"]),
        help="How the K/V heads of a group become one; default: mean.",
    ),
    click.option(
        "--grouping",
        type=click.Choice(["contiguous", "similar"]),
        help="Which heads become one: neighbours (the default), or those that are alike.",
    ),
    click.option(
        "--calibration",
        metavar="FILE|builtin",
        help="UTF-8 text that SOURCE is run on, for the rungs that need it; builtin: our sample.",
    ),
    click.option(
        "--calibration-tokens",
        type=TOKENS,
        help="Tokens of it that are read at most; default: 32,768.",
    ),
    click.option(
        "--temperature/--no-temperature",
        default=None,
        help="Scale the scores of each query head to be as sharp as before.",
    ),
    click.option(
        "--refit",
        type=click.Choice(["none", "output", "mlp"]),
        help="Fit anew: nothing (the default), o, or o and the MLP's last projection.",
    ),
    click.option(
        "--reconstruct",
        type=click.IntRange(min=0),
        metavar="STEPS",
        help="Steps of gradient descent on each layer's q, k, v and o; default: 0.",
    ),
    click.option(
        "--seed", type=int, default=0, show_default=True, help="Of what is drawn at random."
    ),
    click.option(
        "--home",
        type=click.Choice(["auto", "native", "rehome", "custom"]),
        default="auto",
        show_default=True,
        help="The class of the result: its own, another, or a modelling file of ours.",
    ),
    click.option(
        "--dtype",
        type=click.Choice(["bfloat16", "float16", "float32"]),
        help="Element type of the result; default: as stored.",
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
        "--workers",
        type=click.IntRange(1, 64),
        default=2,
        show_default=True,
        help="Threads that merge heads while others are written.",
    ),
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
        metavar="8,4,2,1",
        help="Convert to each of these, evaluate, print the trade-off, write nothing…",
    ),
    click.option(
        "--sweep-methods",
        "methods",
        metavar="NAMES",
        help="Of a sweep: methods and qualities; default: what the other options say.",
    ),
    click.option(
        "--max-delta-loss",
        "budget",
        type=float,
        metavar="NATS",
        help="…but for the smallest cache of a sweep that adds at most this to the loss.",
    ),
    click.option(
        "--by-layer", is_flag=True, help="In a sweep also: what each layer alone adds to the loss."
    ),
)
evaluation_options = stack(
    click.option("--text", type=PATH, help="UTF-8 text; default: a sample of prose."),
    click.option(
        "--max-tokens",
        type=TOKENS,
        default=16384,
        show_default=True,
        help="Tokens to score at most.",
    ),
    click.option("--window", type=TOKENS, help="Tokens a window; default: up to 1,024."),
    click.option("--stride", type=TOKENS, help="Tokens between windows; default: half a window."),
    click.option("--tokenizer", type=PATH, help="A folder; default: the model's own."),
    click.option("--torch-device", "device", help="cpu, cuda, cuda:1…; default: cuda if there."),
    click.option("--speed/--no-speed", default=True, help="Whether to measure speed."),
)
_SHARE = FiniteRange(0, 1)
_WEIGHT = FiniteRange(min=0)
_SCHEDULE = stack(
    click.option("--steps", type=AT_LEAST_1, default=200, show_default=True),
    click.option(
        "--phase-one",
        type=_SHARE,
        default=0.25,
        show_default=True,
        help="Share of the steps in which only attention and norms learn; then all weights do.",
    ),
    click.option(
        "--learning-rate",
        type=FiniteRange(min=0, min_open=True),
        default=1e-3,
        show_default=True,
        help="The highest of AdamW; 1e-4 or less for billions of parameters.",
    ),
    click.option(
        "--warmup",
        type=click.IntRange(0),
        default=20,
        show_default=True,
        help="Steps in which the rate rises, at the start of each phase.",
    ),
    click.option(
        "--decay", type=click.Choice(["cosine", "linear"]), default="cosine", show_default=True
    ),
    click.option(
        "--batch-size",
        type=AT_LEAST_1,
        default=8,
        show_default=True,
        help="Rows of a step, in all processes together.",
    ),
    click.option("--sequence-length", type=TOKENS, help="Tokens of a row; default: up to 1,024."),
    click.option(
        "--gradient-accumulation",
        type=AT_LEAST_1,
        default=1,
        show_default=True,
        help="Parts of a batch that a process computes one after the other.",
    ),
)
_LOSS = stack(
    click.option(
        "--temperature",
        type=FiniteRange(min=0, min_open=True),
        default=1.0,
        show_default=True,
        help="Of both models' logits in the KL divergence.",
    ),
    click.option(
        "--cross-entropy",
        type=_WEIGHT,
        default=0.0,
        show_default=True,
        help="Weight of the text's own tokens beside the KL divergence.",
    ),
    click.option(
        "--hidden-loss",
        type=_WEIGHT,
        default=0.0,
        show_default=True,
        help="Weight of the relative squared error of every layer's output.",
    ),
)
uptraining_options = stack(
    click.option("--teacher", required=True, metavar="ORIGINAL", help="The original, in a folder."),
    click.option(
        "--text",
        "texts",
        type=PATH,
        multiple=True,
        required=True,
        help="UTF-8; may be given several times.",
    ),
    click.option(
        "--output-dir", type=PATH, help="The folder to make; default: CONVERTED-uptrained."
    ),
    _SCHEDULE,
    _LOSS,
    click.option(
        "--held-out",
        type=TOKENS,
        default=16384,
        show_default=True,
        help="Tokens to measure on, from the ends of the texts: at most a tenth of them.",
    ),
    click.option("--tokenizer", type=PATH, help="A folder; default: that of CONVERTED."),
    click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16"]),
        help="To compute in; weights are trained in float32. Default: as the launcher says.",
    ),
    click.option("--torch-device", "device", help="cpu or cuda; default: cuda if there."),
    click.option("--seed", type=int, default=0, show_default=True, help="Of the order of rows."),
    click.option(
        "--checkpoint-every",
        type=click.IntRange(0),
        default=100,
        show_default=True,
        help="Steps; 0: only between the phases.",
    ),
    click.option(
        "--resume/--no-resume",
        default=True,
        show_default=True,
        help="Whether to go on with the checkpoints of a run that was killed.",
    ),
)
