"""The command that starts the engine as it was planned."""

from collections.abc import Callable, Iterator
from shlex import quote

from headcount.model.dtypes import ALIASES

from .planning import ServingPlan


def launch_command(plan: ServingPlan) -> str:
    """One line for a shell, or for Python where the engine is a library."""
    return " ".join(_COMMANDS[plan.request.engine](plan))


def _vllm(plan: ServingPlan) -> Iterator[str]:
    request, workload = plan.request, plan.workload
    yield f"vllm serve {quote(plan.subject.model_id)} --max-model-len {workload.context}"
    yield from _number("--tensor-parallel-size", request.tp, 1)
    yield from _number("--pipeline-parallel-size", request.pp, 1)
    yield from _number("--decode-context-parallel-size", request.context_ranks, 1)
    if request.kv_memory is not None:
        yield f"--kv-cache-memory-bytes {request.kv_memory}"
    elif request.utilisation is not None:
        yield f"--gpu-memory-utilization {request.utilisation:g}"
    if request.kv_dtype not in (None, "auto"):
        yield f"--kv-cache-dtype {_vllm_cache(request.kv_dtype)}"
    yield from _vllm_dtype(request.dtype)
    yield from _number("--block-size", request.block_size, None)
    yield from _number("--max-num-seqs", request.max_num_seqs, None)
    yield from _number("--max-num-batched-tokens", request.max_num_batched_tokens, None)
    if request.enforce_eager:
        yield "--enforce-eager"
    if request.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager"
    if request.mamba_cache_mode is not None:
        caches = "--no-enable" if request.mamba_cache_mode == "none" else "--enable"
        yield f"{caches}-prefix-caching --mamba-cache-mode {request.mamba_cache_mode}"


def _vllm_cache(name: str | None) -> str:
    full = ALIASES.get(name or "", name or "")
    return {"float8_e4m3fn": "fp8", "float8_e5m2": "fp8_e5m2"}.get(full, full)


def _vllm_dtype(dtype: str | None) -> Iterator[str]:
    full = ALIASES.get(dtype or "", dtype or "")
    if full.startswith("float8"):
        yield "--quantization fp8"
    elif full in ("float16", "bfloat16", "float32"):
        yield f"--dtype {full}"


def _number(option: str, value: int | None, default: int | None) -> Iterator[str]:
    if value is not None and value != default:
        yield f"{option} {value}"


def _sglang(plan: ServingPlan) -> Iterator[str]:
    request = plan.request
    yield f"python -m sglang.launch_server --model-path {quote(plan.subject.model_id)}"
    yield f"--context-length {plan.workload.context}"
    yield from _number("--tp-size", request.tp, 1)
    yield from _number("--pp-size", request.pp, 1)
    if request.kv_memory is not None:
        yield f"--max-total-tokens {plan.kv_tokens}"
    elif request.utilisation is not None:
        yield f"--mem-fraction-static {request.utilisation:g}"
    if request.kv_dtype not in (None, "auto"):
        full = ALIASES.get(request.kv_dtype or "", request.kv_dtype or "")
        yield f"--kv-cache-dtype {full.replace('float8', 'fp8').replace('e4m3fn', 'e4m3')}"
    yield from _number("--page-size", request.block_size, None)


def _llama_cpp(plan: ServingPlan) -> Iterator[str]:
    from ..engines.llama_cpp import cache_type

    batch = plan.workload.batch_size
    yield f"llama-server -m {quote(plan.subject.model_id)} -ngl 999"
    yield f"-c {plan.workload.context * batch}"
    yield from _number("--parallel", batch, 1)
    kind = cache_type(plan.request.kv_dtype)
    if kind != "f16":
        yield f"--cache-type-k {kind} --cache-type-v {kind}"
    if plan.request.tp > 1:
        yield f"--split-mode row --tensor-split {','.join(['1'] * plan.request.tp)}"


def _transformers(plan: ServingPlan) -> Iterator[str]:
    implementation = ', cache_implementation="static"' if plan.request.static_cache else ""
    yield f"model.generate(**inputs, max_length={plan.workload.context}{implementation})"


_COMMANDS: dict[str, Callable[[ServingPlan], Iterator[str]]] = {
    "vllm": _vllm,
    "sglang": _sglang,
    "llama.cpp": _llama_cpp,
    "transformers": _transformers,
}
