"""vLLM's start-up log: vllm/v1/worker, vllm/v1/core of the versions whose rules are known."""

import re
from collections.abc import Iterator

from ...request import STATE_MODES, PlanRequest
from ..engine import NO_RELEASES
from ..start_log import NUMBER, QUOTED, Alternative, Log, LogLine, StartLog, number

_STATE_MODE = re.compile(r"Mamba cache mode is set to '(none|align|all)'")
_SERVE = re.compile(rf"vllm serve {QUOTED}")
_OVERRIDE = "Overriding num_gpu_blocks="
_BLOCKS_FOUND = re.compile(rf"num_gpu_blocks={NUMBER} with num_gpu_blocks_override={NUMBER}")
_VERSIONS = ("0.11.0", "0.12.0", "0.19.0", "0.21.0", "0.26.0", "0.33.0")  # whose rules differ


def _read_line(log: Log, line: str) -> None:
    if "Hybrid KV cache manager is disabled" in line:
        log.settings["disable_hybrid_kv_cache_manager"] = 1
    if "Mamba cache mode" in line and (match := _STATE_MODE.search(line)):
        log.settings["mamba_cache_mode"] = match[1]
    if "FlashInfer" in line and "sampling" in line and "not" not in line.lower():
        log.settings["sampler"] = "flashinfer"
    if _OVERRIDE in line and (match := _BLOCKS_FOUND.search(line)):
        # while CUDA graphs are profiled, of 0 blocks; else the user's
        log.settings["overridden"] = int(number(match[1])) and int(number(match[2]))
    if "vllm serve" in line and (match := _SERVE.search(line)):
        model = match[1].rstrip(".")
        if not model.startswith("-") and model not in ("None", "null") and len(model) <= 200:
            log.settings["model"] = model


def _finish(log: Log) -> None:
    """It says at the end again what the cache got."""
    if "in_use_gib" in log.figures:
        log.figures.setdefault("available_gib", log.figures.pop("in_use_gib"))


def _other_counts(request: PlanRequest) -> Iterator[Alternative]:
    for tokens in (2048, 8192, 16384):
        yield f"--max-num-batched-tokens {tokens}", {"max_num_batched_tokens": tokens}
    for mode in STATE_MODES:
        yield f"--mamba-cache-mode {mode}", {"mamba_cache_mode": mode}
    yield "--disable-hybrid-kv-cache-manager", {"disable_hybrid_kv_cache_manager": True}
    for version in _VERSIONS:
        yield f"the rules of {version}", {"version": NO_RELEASES.parse(version)}


def _other_memory(said: frozenset[str]) -> Iterator[Alternative]:
    if "sampler" not in said:
        yield "FlashInfer's sampler (--sampler flashinfer)", {"sampler": "flashinfer"}
    if "max_num_seqs" not in said:
        for count in (256, 128, 64, 1024):
            yield f"--max-num-seqs {count}", {"max_num_seqs": count}
    if "enforce_eager" not in said:
        yield "no CUDA graphs (--enforce-eager)", {"enforce_eager": True}


LOG = StartLog(
    engine="vllm",
    looked_for="`Available KV cache memory`, `GPU KV cache size`, `Maximum concurrency`,"
    " `# GPU blocks`, `Model loading took` (vLLM)",
    starts=("Initializing a V", "Initializing an LLM engine"),
    of_one_start=("state_block", "sampler", "disable_hybrid_kv_cache_manager"),
    no_figures=(_OVERRIDE,),
    figures=(
        LogLine("KV cache memory", rf"vailable KV cache memory: {NUMBER} ?GiB", "available_gib"),
        LogLine("reserved for KV", rf"reserved for KV Cache is {NUMBER} ?GiB", "available_gib"),
        LogLine("memory in use is", rf"kv cache memory in use is {NUMBER} ?GiB", "in_use_gib"),
        LogLine("GPU KV cache size", rf"GPU KV cache size: {NUMBER} tokens", "kv_tokens"),
        LogLine(
            "aximum concurrency",
            rf"aximum concurrency for {NUMBER} tokens per request: {NUMBER}x",
            *("context", "concurrency"),
        ),
        LogLine("GPU blocks", rf"# (?:GPU|cuda) blocks: {NUMBER}", "num_blocks"),
        LogLine("num_gpu_blocks", rf"num_gpu_blocks(?: is:|['\"]?[:=]) ?{NUMBER}", "num_blocks"),
        LogLine("oading took", rf"[Mm]odel loading took {NUMBER} ?Gi?B", "weights_gib"),
        LogLine("weights took", rf"[Ll]oading model weights took {NUMBER} ?Gi?B", "weights_gib"),
        LogLine("weights take", rf"model weights take {NUMBER} ?GiB", "weights_gib"),
        LogLine("for weight", rf"{NUMBER} GiB for weight", "weights_gib"),
        LogLine("apturing finished", rf"apturing finished in .{{0,40}}took {NUMBER} GiB", "graphs"),
        LogLine("CUDA graph memory", rf"stimated CUDA graph memory: {NUMBER} GiB", "graphs"),
        LogLine(
            "Free memory on device", rf"on device.{{0,20}}\({NUMBER}/{NUMBER} GiB\)", "", "total"
        ),
        LogLine("total_gpu_memory", rf"total_gpu_memory \({NUMBER}GiB\)", "total"),
    ),
    numbers=(
        LogLine("Using max model len", rf"Using max model len {NUMBER}", "context"),
        LogLine("attention block size", rf"attention block size to {NUMBER}", "state_block"),
        LogLine("GPU memory utilization is", rf"ation is \({NUMBER},", "utilisation"),
        LogLine("gpu_memory_utilization (", rf"utilization \({NUMBER}\)", "utilisation"),
    ),
    versions=(
        LogLine("LLM engine (", r"LLM engine \(v?([0-9][^\s),]{0,40})\)"),
        LogLine("vLLM", r"vLLM[^\n]{0,30}? version:? ?v?([0-9][^\s,]{0,40})"),
        LogLine("vllm", r"vllm[=-]{1,2}([0-9]+\.[^\s,]{1,30})"),
    ),
    settings={
        **{"model": "model", "model_tag": "model"},
        **{"max_seq_len": "context", "max_model_len": "context"},
        **{"tensor_parallel_size": "tp", "pipeline_parallel_size": "pp"},
        **{"decode_context_parallel_size": "dcp", "prefill_context_parallel_size": "pcp"},
        **{"block_size": "block_size", "kv_cache_dtype": "kv_dtype", "dtype": "dtype"},
        **{"quantization": "quantization", "gpu_memory_utilization": "utilisation"},
        **{"max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens"},
        **{"enforce_eager": "enforce_eager", "enable_prefix_caching": "caches_prefixes"},
        **{"mamba_cache_mode": "mamba_cache_mode", "num_speculative_tokens": "speculated"},
    },
    read_line=_read_line,
    finish=_finish,
    other_counts=_other_counts,
    other_memory=_other_memory,
)
