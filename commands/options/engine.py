"""The options that `plan` and `reconcile` share: which engine serves, and how it was started."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from headcount.plan.request import FLASH_ATTENTION, MODEL_RUNNERS, SAMPLERS, STATE_MODES

from .names import BLOCK_SIZE, GPU_LAYERS, PP, SEQUENCES
from .shared import AT_LEAST_0, AT_LEAST_1, TOKENS, Decorator, stack

if TYPE_CHECKING:
    _Choice = click.Choice[str]
else:
    _Choice = click.Choice  # which takes no type before click 8.2

LLAMA_CPP_OPTIONS = stack(
    click.option(
        *GPU_LAYERS,
        type=AT_LEAST_0,
        help="Layers on the device (llama.cpp).",
    ),
    click.option("--n-cpu-moe", type=AT_LEAST_0, help="Layers whose experts stay off it."),
    click.option("--cpu-moe", is_flag=True, help="All experts stay off it."),
    click.option("--no-kv-offload", is_flag=True, help="The caches stay off it."),
    click.option("--parallel", type=AT_LEAST_1, help="Slots; default: 4, which share one cache."),
    click.option("--kv-unified", is_flag=True, help="--parallel slots share one cache, too."),
    click.option("--ubatch-size", type=AT_LEAST_1, help="Tokens of a micro-batch; default: 512."),
    click.option("--cache-type-k", metavar="TYPE", help="Of keys: f16, q8_0…"),
    click.option("--cache-type-v", metavar="TYPE", help="Of values."),
    click.option("--flash-attn", type=click.Choice(FLASH_ATTENTION)),
    click.option("--swa-full", is_flag=True, help="Layers with a window have all cells."),
)
_START_OPTIONS = stack(
    click.option("--engine-version", metavar="X.Y.Z", help="Default: the newest that is known."),
    click.option(*PP, type=AT_LEAST_1, help="Pipeline stages; default: 1."),
    click.option("--context-ranks", type=AT_LEAST_1, help="Context parallel, decode x prefill."),
    click.option(*BLOCK_SIZE, type=AT_LEAST_1, help="Tokens of a block, or page."),
    click.option(
        *SEQUENCES,
        type=AT_LEAST_1,
        help="Sequences that run at once (vllm, sglang).",
    ),
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


# What people write, by letters alone -> the letters of the engine.
_SHORT = {"trtllm": "tensorrtllm", "trt": "tensorrtllm", "hf": "transformers", "ggml": "llamacpp"}


class _EngineName(_Choice):
    """llamacpp, llama-cpp, TensorRT_LLM and short forms are names that are known, too."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        by_letters = {_letters(str(choice)): choice for choice in self.choices}
        asked = _letters(str(value))
        return super().convert(by_letters.get(_SHORT.get(asked, asked), value), param, ctx)


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name)).casefold()


def start_options(engines: Iterable[str]) -> Decorator:
    """--engine, one of `engines`, and how it was started."""
    engine = click.option(
        "--engine",
        type=_EngineName(list(engines), case_sensitive=False),
        help="The engine that serves; where one is needed and none is named: vllm.",
    )
    return stack(engine, _START_OPTIONS)
