"""`headcount.plan`: what serving a model takes in memory, and what fits where."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from headcount.plan.command import plan_command
from headcount.plan.engines.registry import ENGINES
from headcount.report.report import Finding

from .result import Result, public
from .start_options import STARTS, StartOptions
from .values import (
    WORKLOAD,
    Check,
    Name,
    Size,
    checked,
    count,
    flag,
    integer,
    model_name,
    nbytes,
    number,
    one_of,
    path,
    text,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, kw_only=True, eq=False)
class PlanningResult(Result):
    """A plan. Bytes are those of one device; what has no device to be held against is None, as is
    what only an engine has (`kv_tokens`, `concurrency`, `launch_command`), and a concurrency
    without a limit.

    `verdict` is fits, borderline (within the error of the estimate) or does not fit; `holds` says
    whether all that was required does, and `reasons` why not. Without an engine and a device,
    `device` is None and `to_dict()["devices"]` has every device.
    """

    id: str
    engine: str | None
    engine_version: str | None
    device: str | None
    devices: int | None
    tp: int
    context: int
    batch_size: int
    kv_dtype: str
    fits: bool | None
    verdict: str | None
    refusals: tuple[str, ...]
    weights_bytes: int | None
    kv_cache_bytes: int
    total_bytes: int | None
    budget_bytes: int | None
    free_bytes: int | None
    max_context: int | None
    max_batch_size: int | None
    kv_tokens: int | None
    concurrency: float | None
    launch_command: str | None
    holds: bool
    reasons: tuple[str, ...] = field(repr=False)
    warnings: tuple[str, ...] = field(repr=False)
    findings: tuple[Finding, ...] = field(repr=False)


def _integers(name: str, value: Any) -> int | tuple[int, ...]:
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        return tuple(integer(name, one) for one in value)
    return integer(name, value)


_MODEL: Mapping[str, Check] = {
    **WORKLOAD,
    **{"dtype": text, "tp": _integers, "utilisation": number, "prune_heads": text},
    **{"parameters": count, "kv_memory": nbytes, "require": text, "target_users": integer},
    **{"prices": path, "engine": one_of(ENGINES), "static_cache": flag},
}


@public
def plan(
    model: Name,
    *,
    device: str | int | Sequence[str] | None = None,
    context: Size | None = None,
    batch_size: int = 1,
    kv_dtype: str | None = None,
    encoder_tokens: Size | None = None,
    dtype: str | None = None,
    tp: int | Sequence[int] = 1,
    utilisation: float | None = None,
    prune_heads: str | int | None = None,
    parameters: Size | None = None,
    kv_memory: Size | None = None,
    require: str | None = None,
    target_users: int | None = None,
    prices: Name | None = None,
    engine: str | None = None,
    static_cache: bool = False,
    **start: "Unpack[StartOptions]",
) -> PlanningResult:
    """Plans the memory that serving `model`, named as for `audit`, takes.

    `device` is a name of `headcount devices` or a size ("h100", "80GiB", or bytes); of several the
    best is looked for. `engine` (vllm, sglang, llama.cpp, tensorrt-llm, transformers) plans as that
    engine accounts, and `start` is how it is started: `StartOptions`, as `headcount plan --help`
    has them. `dtype` is what the weights are loaded as, `utilisation` the share of the memory that
    may be taken, `kv_memory` the bytes of each device's cache, `static_cache` transformers' own
    cache of a fixed length. `require` is a gate, such as "fits,context>=32k"; `target_users` are
    spread over as many devices as serve them, which a file
    of `prices` chooses by cost. Raises HeadcountError.
    """
    named = {"context": context, "batch_size": batch_size, "kv_dtype": kv_dtype, "tp": tp}
    of_model = {"encoder_tokens": encoder_tokens, "dtype": dtype, "parameters": parameters}
    shares = {"utilisation": utilisation, "kv_memory": kv_memory, "static_cache": static_cache}
    pruned = str(prune_heads) if isinstance(prune_heads, int) else prune_heads
    asked = {"require": require, "target_users": target_users, "prices": prices, "engine": engine}
    given = checked({**named, **of_model, **shares, **asked, "prune_heads": pruned}, _MODEL)
    answer = plan_command(
        model_name(model),
        form="html",  # with charts, which to_html() shows
        device=_device(device),
        **{"utilisation": None, **given},
        **checked(start, STARTS),
    )
    report = answer.report
    document: Mapping[str, Any] = report.document
    return PlanningResult(
        report=report,
        **_of_document(document),
        holds=answer.holds,
        reasons=answer.reasons,
        warnings=tuple(document["warnings"]),
        findings=report.findings,
    )


def _device(device: str | int | Sequence[str] | None) -> str | None:
    """As the command line takes it."""
    if device is None or isinstance(device, str):
        return None if device is None else text("device", device)
    if isinstance(device, int):
        return f"{nbytes('device', device)}B"
    return ",".join(text("device", one) for one in device)


def _of_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a plan's document holds by their names."""
    request, memory, engine = (document.get(part) or {} for part in ("request", "memory", "engine"))
    bytes_of = ("weights_bytes", "kv_cache_bytes", "total_bytes", "budget_bytes", "free_bytes")
    return {
        "id": document["model"]["id"],
        "engine": engine.get("name"),
        "engine_version": engine.get("version"),
        **{name: engine.get(name) for name in ("devices", "kv_tokens", "concurrency")},
        "launch_command": engine.get("launch_command"),
        **{name: request[name] for name in ("device", "tp", "context", "batch_size", "kv_dtype")},
        **{name: document[name] for name in ("fits", "verdict")},
        "refusals": tuple(document["refusals"]),
        **{name: memory[name] for name in bytes_of},
        **{name: document["limits"][name] for name in ("max_context", "max_batch_size")},
    }
