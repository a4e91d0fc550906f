"""The options that several commands share, and the types of their values."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .errors import HeadcountError
from .units import parse_bytes, parse_count, parse_tokens

if TYPE_CHECKING:
    _ParamType = click.ParamType[int]
else:
    _ParamType = click.ParamType  # not generic before click 8.2

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
MAX_BATCH_SIZE = 1_000_000


class Size(_ParamType):
    """A size option, read by one of the parsers of `units`."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self.parse = parse

    def convert(self, value: Any, param: Any, ctx: Any) -> int:
        try:
            return value if isinstance(value, int) else self.parse(value)
        except HeadcountError as error:
            self.fail(str(error), param, ctx)


class FilePath(click.Path):
    """A path option; an empty one is refused, where Path("") would be the current folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        if value == "":
            self.fail("must not be empty", param, ctx)
        return super().convert(value, param, ctx)


TOKENS, SIZE, COUNT = (
    Size("tokens", parse_tokens),
    Size("size", parse_bytes),
    Size("count", parse_count),
)
PATH = FilePath()


def stack(*decorators: Callable[[Any], Any]) -> Decorator:
    """Several options as one decorator, in the order of `--help`."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        for decorator in reversed(decorators):
            function = decorator(function)
        return function

    return decorate


output_options = stack(
    click.option(
        "--format",
        "form",
        type=click.Choice(["table", "markdown", "json", "csv", "html"]),
        default="table",
        show_default=True,
        help="How to print the report.",
    ),
    click.option("-o", "--output", type=PATH, help="Write to this file, not to stdout."),
)
workload_options = stack(
    click.option("--context", type=TOKENS, help="Tokens per sequence: 8192, or 8k for the same."),
    click.option(
        "--batch-size", type=click.IntRange(1, MAX_BATCH_SIZE), default=1, show_default=True
    ),
    click.option("--kv-dtype", help="Element type of the cache: bf16, fp16, fp32, fp8, int8…"),
    click.option("--encoder-tokens", type=TOKENS, help="Tokens that cross-attention sees."),
)
AUDIT_HELP = """Report heads, attention parameters and KV-cache bytes of MODEL, layer by layer.

MODEL is a name of the catalogue (`headcount models`), a folder, a config.json (- reads one from
standard input), a .safetensors file or index, a .gguf, .bin or .pt file, or org/name[@revision] of
the Hugging Face Hub (org/name/FILE.gguf where it holds several). Config and headers are read, never
weights. Several models are also compared.

\b
Example:
  audit llama-3-8b --context 8k --kv-dtype fp8
  audit ./my-checkpoint --format json
  audit llama-3-8b ./model.gguf

Exit status: 0 fine, 1 findings at or above --fail-on, 2 wrong use or unreadable input, 3 a failure
while writing."""

audit_options = stack(
    click.option("--config", metavar="FILE", help="The config.json of weights that lie alone."),
    click.option("--explain", is_flag=True, help="Also say where each value came from."),
    click.option("--strict", is_flag=True, help="Refuse a model_type that nothing describes."),
    click.option(
        "--fail-on",
        type=click.Choice(["error", "warning", "note", "never"]),
        default="error",
        show_default=True,
        help="The least severity of a finding that makes the exit status 1.",
    ),
    click.option("--select", multiple=True, metavar="CODES", help="Only these findings: H1,H203."),
    click.option("--ignore", multiple=True, metavar="CODES", help="Without these: H4,H606."),
    click.option("--scan", is_flag=True, help="Also read the weights: NaN, zeros, equal heads."),
    click.option("--verify", is_flag=True, help="Also build it with transformers, and compare."),
)
plan_options = stack(
    click.option(
        "--dtype", help="Element type that the weights are loaded as; default: as stored."
    ),
    click.option(
        "--tp",
        type=click.IntRange(min=1),
        default=1,
        show_default=True,
        help="Devices that share the model (tensor parallel).",
    ),
    click.option(
        "--utilisation",
        type=click.FloatRange(0, 1, min_open=True),
        help="Share of the usable memory that may be taken; default: 0.9, or the engine's.",
    ),
    click.option("--parameters", type=COUNT, help="Such as 7b, where the config does not tell."),
)
_AT_LEAST_1 = click.IntRange(min=1)
_engine_options = stack(
    click.option(
        "--engine",
        type=click.Choice(["vllm", "sglang", "transformers", "llama.cpp"]),
        help="The engine that serves; where one is needed and none is named: vllm.",
    ),
    click.option("--engine-version", metavar="X.Y.Z", help="Default: the newest that is known."),
    click.option("--pp", type=_AT_LEAST_1, help="Pipeline stages; default: 1."),
    click.option("--context-ranks", type=_AT_LEAST_1, help="Context parallel, decode x prefill."),
    click.option("--block-size", type=_AT_LEAST_1, help="Tokens of a block, or page."),
    click.option("--max-num-seqs", type=_AT_LEAST_1, help="Sequences of a step (vllm)."),
    click.option("--max-num-batched-tokens", type=TOKENS, help="Tokens of a step (vllm)."),
    click.option("--enforce-eager", is_flag=True, help="Without CUDA graphs (vllm)."),
    click.option(
        "--disable-hybrid-kv-cache-manager", is_flag=True, help="Windows as full layers (vllm)."
    ),
    click.option(
        "--mamba-cache-mode",
        type=click.Choice(["none", "align", "all"]),
        help="Recurrent state kept for cached prefixes (vllm).",
    ),
    click.option("--sampler", type=click.Choice(["pytorch", "flashinfer"]), help="Of vllm."),
    click.option("--offline", is_flag=True, help="vllm.LLM in place of a server: its defaults."),
)
serving_options = stack(
    click.option("--kv-memory", type=SIZE, help="Cache memory of each device, as an engine logs."),
    click.option(
        "--require", metavar="WHAT", help="Exit with 1 without: fits,context>=32k,concurrency>=8."
    ),
    click.option("--target-users", type=_AT_LEAST_1, help="Search devices x tp for so many."),
    _engine_options,
    click.option("--static-cache", is_flag=True, help="A static cache (transformers)."),
)
reconcile_options = stack(
    click.option("--model", help="Where the log names none, or one that is not known."),
    click.option("--device", metavar="NAME|SIZE", help="Such as h100, or its memory as logged."),
    click.option("--context", type=TOKENS, help="The longest request, in tokens."),
    click.option("--tp", type=_AT_LEAST_1, help="Devices that share the model."),
    click.option("--dtype", help="Element type that the weights were loaded as."),
    click.option("--kv-dtype", help="Element type of the cache."),
    click.option("--utilisation", type=click.FloatRange(0, 1, min_open=True)),
    _engine_options,
)
# What --quality says in place of options that are not given.
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
        help="Rungs of the ladder, see below; options that are given come first.",
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
_SHARE = click.FloatRange(0, 1)
_WEIGHT = click.FloatRange(min=0)
_SCHEDULE = stack(
    click.option("--steps", type=_AT_LEAST_1, default=200, show_default=True),
    click.option(
        "--phase-one",
        type=_SHARE,
        default=0.25,
        show_default=True,
        help="Share of the steps in which only attention and norms learn; then all weights do.",
    ),
    click.option(
        "--learning-rate",
        type=click.FloatRange(min=0, min_open=True),
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
        type=_AT_LEAST_1,
        default=8,
        show_default=True,
        help="Rows of a step, in all processes together.",
    ),
    click.option("--sequence-length", type=TOKENS, help="Tokens of a row; default: up to 1,024."),
    click.option(
        "--gradient-accumulation",
        type=_AT_LEAST_1,
        default=1,
        show_default=True,
        help="Parts of a batch that a process computes one after the other.",
    ),
)
_LOSS = stack(
    click.option(
        "--temperature",
        type=click.FloatRange(min=0, min_open=True),
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
