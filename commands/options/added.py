"""What a start of an engine may add: ranks of data parallel, experts, drafts, adapters, offloading.
They are called as the engines call them."""

from typing import TYPE_CHECKING, Any

import click

from headcount.plan.options.algorithms import ALGORITHMS

from .shared import AT_LEAST_0, AT_LEAST_1, FiniteRange, stack

if TYPE_CHECKING:
    _Numbers = click.ParamType[tuple[int, ...]]
    _Names = click.ParamType[tuple[str, ...]]
else:
    _Numbers = _Names = click.ParamType  # not generic before click 8.2


class Numbers(_Numbers):
    """Numbers with commas between them, as in 10,11,11."""

    name = "N,N,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = value.split(",")
        if not all(part.strip().isdecimal() and len(part.strip()) < 10 for part in parts):
            self.fail(f"{value!r}: numbers with commas between them are meant", param, ctx)
        return tuple(int(part) for part in parts)


class Names(_Names):
    """Names with commas or spaces between them."""

    name = "NAME,..."

    def convert(self, value: Any, param: Any, ctx: Any) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        found = tuple(value.replace(",", " ").split())
        if not found:
            self.fail("must not be empty", param, ctx)
        return found


_PARALLEL = stack(
    click.option(
        "--dp",
        "--data-parallel-size",
        "--dp-size",
        "dp",
        type=AT_LEAST_1,
        help="Ranks of data parallel, each with a cache of its own (vllm).",
    ),
    click.option(
        "--enable-expert-parallel", is_flag=True, help="Experts whole on the ranks (vllm)."
    ),
    click.option("--enable-dp-attention", is_flag=True, help="--dp ranks of those of tp (sglang)."),
    click.option("--ep-size", type=AT_LEAST_1, help="Ranks that have experts whole (sglang)."),
    click.option(
        "--num-redundant-experts",
        "--ep-num-redundant-experts",
        "num_redundant_experts",
        type=AT_LEAST_0,
        help="Of --eplb-config (vllm).",
    ),
    click.option(
        "--pp-layer-partition",
        type=Numbers(),
        help="Layers of each stage: VLLM_PP_LAYER_PARTITION, SGLANG_PP_LAYER_PARTITION.",
    ),
)
_DRAFTS = stack(
    click.option(
        "--speculative-config",
        metavar="JSON",
        help='Such as {"method": "mtp", "num_speculative_tokens": 2} (vllm).',
    ),
    click.option(
        "--speculative-algorithm", type=click.Choice([*ALGORITHMS]), help="What drafts (sglang)."
    ),
    click.option("--speculative-draft-model-path", metavar="MODEL", help="(sglang)"),
    click.option("--speculative-num-steps", type=AT_LEAST_1, help="(sglang)"),
    click.option("--speculative-eagle-topk", type=AT_LEAST_1, help="(sglang)"),
    click.option("--speculative-num-draft-tokens", type=AT_LEAST_1, help="(sglang)"),
)
_ADAPTERS = stack(
    click.option("--enable-lora", is_flag=True, help="With LoRA adapters (vllm, sglang)."),
    click.option(
        "--max-loras",
        "--max-loras-per-batch",
        "max_loras",
        type=AT_LEAST_1,
        help="Adapters of a step; default: 1, of sglang 8.",
    ),
    click.option("--max-lora-rank", type=AT_LEAST_1, help="Of adapters; default: 16."),
    click.option("--lora-dtype", type=click.Choice(["float16", "bfloat16"])),
    click.option(
        "--lora-target-modules", type=Names(), help="Such as q_proj,v_proj; default: all."
    ),
    click.option("--fully-sharded-loras", is_flag=True, help="Adapters split over tp (vllm)."),
)
_IMAGES = stack(
    click.option(
        "--limit-mm-per-prompt",
        metavar="JSON",
        help='Such as {"image": 0, "video": 0}: without the encoder (vllm).',
    ),
    click.option(
        "--mm-processor-kwargs", metavar="JSON", help='{"max_pixels": N} of an image (vllm).'
    ),
)
added_options = stack(
    _IMAGES,
    _PARALLEL,
    _DRAFTS,
    _ADAPTERS,
    click.option(
        "--cpu-offload-gb", type=FiniteRange(min=0), help="GiB of weights in the host's memory."
    ),
)
