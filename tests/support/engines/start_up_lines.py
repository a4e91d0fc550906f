"""Lines that engines print when they start, made by hand from the formats of their sources."""

import json
from typing import Any

from click.testing import CliRunner, Result

from headcount.cli import main


def reconcile(log: str, *args: str) -> Result:
    return CliRunner().invoke(main, ["reconcile", "-", "--details", *args], input=log)


def rows(log: str, *args: str) -> dict[str, dict[str, Any]]:
    """What `--format json` gives, by figure."""
    result = reconcile(log, *args, "--format", "json")
    assert result.exit_code == 0, result.output
    return {row["figure"]: row for row in json.loads(result.output)["figures"]}


def vllm(version: str, model: str, context: int, *lines: str, tp: int = 1, more: str = "") -> str:
    """A start of vLLM's V1 engine."""
    return "\n".join(
        [
            f"(EngineCore_DP0 pid=7) INFO [core.py:97] Initializing a V1 LLM engine (v{version})"
            f" with config: model='{model}', speculative_config=None, dtype=torch.bfloat16,"
            f" max_seq_len={context}, tensor_parallel_size={tp}{more}",
            *lines,
            "",
        ]
    )


def too_long(context: int, needed: str, available: str, estimate: int | None = None) -> str:
    said = f" Based on the available memory, the estimated maximum model length is {estimate}."
    return (
        f"ValueError: To serve at least one request with the models's max seq len ({context}),"
        f" ({needed} GiB KV cache is needed, which is larger than the available KV cache memory"
        f" ({available} GiB).{said if estimate else ''} Try increasing `gpu_memory_utilization` or"
        " decreasing `max_model_len` when initializing the engine."
    )


def out_of_memory(tried: str, capacity: str, free: str, used: str) -> str:
    return (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {tried}. GPU 0 has a total"
        f" capacity of {capacity} of which {free} is free. Including non-PyTorch memory, this"
        f" process has {used} memory in use. Of the allocated memory 20.32 GiB is allocated by"
        " PyTorch, and 74.74 MiB is reserved by PyTorch but unallocated."
    )
