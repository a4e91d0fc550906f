"""The options that `plan` and `reconcile` share: which engine serves, and how it was started."""

from collections.abc import Iterable

import click

from headcount.plan.request import MODEL_RUNNERS, SAMPLERS, STATE_MODES

from .options import AT_LEAST_1, TOKENS, Decorator, stack

_START_OPTIONS = stack(
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
        type=click.Choice(STATE_MODES),
        help="Recurrent state kept for cached prefixes (vllm).",
    ),
    click.option(
        "--sampler",
        type=click.Choice(SAMPLERS),
        help="Of vllm's V1 runner.",
    ),
    click.option(
        "--model-runner",
        type=click.Choice(MODEL_RUNNERS),
        help="Of vllm; default: by version and model.",
    ),
    click.option("--offline", is_flag=True, help="vllm.LLM in place of a server: its defaults."),
)


def start_options(engines: Iterable[str]) -> Decorator:
    """--engine, one of `engines`, and how it was started."""
    engine = click.option(
        "--engine",
        type=click.Choice(list(engines)),
        help="The engine that serves; where one is needed and none is named: vllm.",
    )
    return stack(engine, _START_OPTIONS)
