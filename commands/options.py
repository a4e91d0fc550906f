"""The options that several commands share, and the types of their values."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headcount.model.errors import HeadcountError
from headcount.model.units import parse_bytes, parse_count, parse_tokens
from headcount.plan.engines.registry import ENGINES

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


class FiniteRange(click.FloatRange):
    """A range of numbers; NaN, which no bound stops, and infinity are refused."""

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        found = super().convert(value, param, ctx)
        if not math.isfinite(found):
            self.fail(f"{value} is not a finite number", param, ctx)
        return found


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
        type=FiniteRange(0, 1, min_open=True),
        help="Share of the usable memory that may be taken; default: 0.9, or the engine's.",
    ),
    click.option("--parameters", type=COUNT, help="Such as 7b, where the config does not tell."),
)
AT_LEAST_1 = click.IntRange(min=1)
_engine_options = stack(
    click.option(
        "--engine",
        type=click.Choice(list(ENGINES)),
        help="The engine that serves; where one is needed and none is named: vllm.",
    ),
    click.option("--engine-version", metavar="X.Y.Z", help="Default: the newest that is known."),
    click.option("--pp", type=AT_LEAST_1, help="Pipeline stages; default: 1."),
    click.option("--context-ranks", type=AT_LEAST_1, help="Context parallel, decode x prefill."),
    click.option("--block-size", type=AT_LEAST_1, help="Tokens of a block, or page."),
    click.option("--max-num-seqs", type=AT_LEAST_1, help="Sequences of a step (vllm)."),
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
    click.option("--target-users", type=AT_LEAST_1, help="Search devices x tp for so many."),
    _engine_options,
    click.option("--static-cache", is_flag=True, help="A static cache (transformers)."),
)
reconcile_options = stack(
    click.option("--model", help="Where the log names none, or one that is not known."),
    click.option("--device", metavar="NAME|SIZE", help="Such as h100, or its memory as logged."),
    click.option("--context", type=TOKENS, help="The longest request, in tokens."),
    click.option("--tp", type=AT_LEAST_1, help="Devices that share the model."),
    click.option("--dtype", help="Element type that the weights were loaded as."),
    click.option("--kv-dtype", help="Element type of the cache."),
    click.option("--utilisation", type=FiniteRange(0, 1, min_open=True)),
    _engine_options,
)
# What --quality says in place of options that are not given.
