"""vLLM's start-up log: vllm/v1/worker, vllm/v1/core and vllm/worker of the versions whose rules are
known."""

import re
from collections.abc import Iterator

from ...request import STATE_MODES, PlanRequest
from ..engine import NO_RELEASES
from ..start_log import (
    NUMBER,
    SERVED_AS,
    SIZE,
    WORD,
    Alternative,
    FailureLine,
    Log,
    LogLine,
    OwnAccount,
    StartLog,
    number,
)

# The release in an image of NVIDIA's by its month: docs.nvidia.com/deeplearning/frameworks,
# vllm-release-notes, of the months that were read; 25.09 as its own banner has it.
_OF_NVIDIA = {
    **{"25.09": "0.10.1.1", "25.10": "0.10.2", "26.01": "0.11.1", "26.03": "0.17.1"},
    **{"26.05": "0.20.1", "26.10": "0.31.0"},
}
_MONTH = re.compile(r"nvidia/vllm:([0-9]{2}\.[0-9]{2})\b")
_STATE_MODE = re.compile(r"Mamba cache mode is set to '(none|align|all)'")
_DETECTED = re.compile(r"detected platform (cuda|rocm|xpu|hpu|tpu)\b")
_OVERRIDE = "Overriding num_gpu_blocks="
_BLOCKS_FOUND = re.compile(rf"num_gpu_blocks={NUMBER} with num_gpu_blocks_override={NUMBER}")
_VERSIONS = ("0.11.0", "0.12.0", "0.19.0", "0.21.0", "0.26.0", "0.33.0")  # whose rules differ
_FREE = rf"on device[^(\n]{{0,20}}\({NUMBER}/{NUMBER} GiB\) on startup"


def _hybrid(log: Log, line: str) -> None:
    log.settings["disable_hybrid_kv_cache_manager"] = 1


def _state_mode(log: Log, line: str) -> None:
    if match := _STATE_MODE.search(line):
        log.settings["mamba_cache_mode"] = match[1]


def _sampler(log: Log, line: str) -> None:
    if "sampling" in line and "not" not in line.lower():
        log.settings["sampler"] = "flashinfer"


def _overridden(log: Log, line: str) -> None:
    if match := _BLOCKS_FOUND.search(line):
        # while CUDA graphs are profiled, of 0 blocks; else the user's
        log.settings["overridden"] = int(number(match[1])) and int(number(match[2]))


def _platform(log: Log, line: str) -> None:
    if match := _DETECTED.search(line):
        log.settings["platform"] = match[1]


def _image_of_nvidia(log: Log, line: str) -> None:
    """Named by its month; a banner of its, or of vLLM, says more."""
    found = _MONTH.search(line)
    if found and found[1] in _OF_NVIDIA and "version" not in log.settings:
        log.say("version", _OF_NVIDIA[found[1]], 0)


def _pools(log: Log, line: str) -> None:
    """A model that embeds, or classifies, is loaded without its output head (as_embedding_model of
    model_executor/models/adapters.py)."""
    log.settings["without_head"] = 1


def _second_runner(log: Log, line: str) -> None:
    log.settings["model_runner"] = "v2"


def _packed(log: Log, line: str) -> None:
    """Whole numbers, of a format of several schemes. The line does not say of how many bits."""
    log.settings["scheme"] = "wNa16"


def _on_cpu(log: Log, line: str) -> None:
    """Its blocks have 128 tokens, and no step is scheduled before the last is done
    (CpuPlatform.check_and_update_config of vllm/platforms/cpu.py)."""
    log.settings["platform"] = "cpu"
    log.say("block_size", 128, trust=0)
    log.settings["async_scheduling"] = "False"


def _finish(log: Log) -> None:
    """It says at the end again what the cache got; and without the words of an error, if that is
    all, that nothing is left."""
    if "in_use_gib" in log.figures:
        log.figures.setdefault("available_gib", log.figures.pop("in_use_gib"))
    if log.figures.get("available_gib", 1.0) <= 0:
        log.fail("cache")
    if "tokens" in log.failures:  # which the newer engine counts in bytes
        log.settings["version_at_most"] = "0.8.5"


def _own_account(log: Log, request: PlanRequest) -> OwnAccount | None:
    """requested - weights - peak activation - memory outside torch (- graphs, where they count);
    since 0.27 requested - consumed - peak activation, in which the graphs are."""
    found = log.figures
    version = request.version or NO_RELEASES.latest()
    names = ["consumed", "activations"] if "consumed" in found else []
    names = names or ["weights_gib", "activations", "non_torch"]
    if "consumed" not in found and "graphs_ahead" in found and version.at_least(0, 20):
        names.append("graphs_ahead")
    if "requested" not in found or any(name not in found for name in names):
        return None
    parts = [found[name] for name in names]
    words = " - ".join(f"{value:g}" for value in (found["requested"], *parts))
    return OwnAccount(
        gib=found["requested"] - sum(parts),
        addends=len(parts) + 1,
        words=f"{words} GiB, as the log has them",
    )


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


_FAILURES = (
    FailureLine(
        "request",
        LogLine(
            "To serve at least one request",
            rf"max seq len \({NUMBER}\)",
            "context",
        ),
    ),
    FailureLine(  # which may be on a line of its own
        "request",
        LogLine(
            "KV cache is needed",
            rf"{SIZE} KV cache is needed, which is larger than the available KV cache memory"
            rf" \({SIZE}\)",
            *("needed", "available"),
        ),
    ),
    FailureLine(
        "request",
        LogLine(
            "estimated maximum model",
            rf"estimated maximum model length is {NUMBER}",
            "estimate",
        ),
    ),
    FailureLine(
        "tokens",
        LogLine(
            "max seq len (",
            rf"max seq len \({NUMBER}\) is larger than the maximum number of tokens that can be"
            rf" stored in KV cache \({NUMBER}\)",
            *("context", "tokens"),
        ),
    ),
    FailureLine("cache", LogLine("No available memory for the cache blocks", "No available")),
    FailureLine(
        "occupied",
        LogLine(
            "is less than",
            _FREE + r" is less than[^(\n]{0,80}"
            rf"\({NUMBER}, {NUMBER} GiB\)",
            *("free", "total", "utilisation", "requested"),
        ),
    ),
    FailureLine(
        "sampler",
        LogLine(
            "when warming up sampler",
            rf"when warming up sampler with {NUMBER} dummy requests",
            "sequences",
        ),
    ),
    FailureLine("weights", LogLine("Failed to load model - not enough", "not enough GPU memory")),
    FailureLine(
        "changed",
        LogLine(
            "Error in memory profiling",
            rf"Initial free memory {NUMBER} GiB, current free memory {NUMBER} GiB",
            *("before", "after"),
        ),
    ),
)

LOG = StartLog(
    engine="vllm",
    looked_for="`Available KV cache memory`, `GPU KV cache size`, `Maximum concurrency`,"
    " `# GPU blocks`, `Model loading took`, and what a start dies of (vLLM)",
    starts=("Initializing a V", "Initializing an LLM engine"),
    of_one_start=(
        *("state_block", "sampler", "disable_hybrid_kv_cache_manager", "model_runner", "scheme"),
    ),
    no_figures=(_OVERRIDE,),
    no_settings=(
        *("equivalent to --gpu", "CUDA graph memory profiling", "Try lowering", "Try increasing"),
        *("Replace gpu_memory_utilization", "Please try lowering", "is not valid JSON"),
        "Prefetching checkpoint",
    ),
    figures=(
        LogLine("KV cache memory", rf"vailable KV cache memory: {NUMBER} ?GiB", "available_gib"),
        LogLine("reserved for KV", rf"reserved for KV Cache is {NUMBER} ?GiB", "available_gib"),
        LogLine("memory in use is", rf"kv cache memory in use is {NUMBER} ?GiB", "in_use_gib"),
        LogLine("GiB memory for KV", rf"reserved {NUMBER} ?GiB memory for KV", "available_gib"),
        LogLine("KV cache size: ", rf"KV cache size: {NUMBER} tokens", "kv_tokens"),
        LogLine(
            "aximum concurrency",
            rf"aximum concurrency for {NUMBER} tokens per request: {NUMBER}x",
            *("context", "concurrency"),
        ),
        LogLine("GPU blocks", rf"# (?:GPU|cuda) blocks: {NUMBER}", "num_blocks"),
        LogLine("cuda blocks", rf"# cuda blocks: {NUMBER}", "num_blocks"),
        LogLine("rocm blocks", rf"# rocm blocks: {NUMBER}", "num_blocks"),
        LogLine("num_gpu_blocks", rf"num_gpu_blocks(?: is:|['\"]?[:=]) ?{NUMBER}", "num_blocks"),
        LogLine("oading took", rf"[Mm]odel loading took {NUMBER} ?Gi?B", "weights_gib"),
        LogLine("weights took", rf"[Ll]oading model weights took {NUMBER} ?Gi?B", "weights_gib"),
        LogLine("weights take", rf"model weights take\s{{1,8}}{NUMBER} ?GiB", "weights_gib"),
        LogLine("for weight", rf"{NUMBER} GiB for weight", "weights_gib"),
        LogLine("weights memory: ", rf"weights memory: {NUMBER} ?GiB", "weights_gib"),
        LogLine(
            "non_torch_memory", rf"non_torch_memory (?:takes)?\s{{0,8}}{NUMBER} ?GiB", "non_torch"
        ),
        LogLine("non-torch memory", rf"{NUMBER} GiB for non-torch memory", "non_torch"),
        LogLine("non-torch forward", rf"forward increase memory: {NUMBER} ?GiB", "non_torch"),
        LogLine(
            "peak memory ",
            rf"activation peak memory (?:takes)?\s{{0,8}}{NUMBER} ?GiB",
            "activations",
        ),
        LogLine("peak activation", rf"{NUMBER} GiB for peak activation", "activations"),
        LogLine("peak memory increase", rf"peak memory increase: {NUMBER} ?GiB", "activations"),
        LogLine("consumed memory", rf"{NUMBER} GiB for consumed memory", "consumed"),
        LogLine("GPU memory utilization is", rf"ation is \([0-9.]+, {NUMBER} GiB\)", "requested"),
        LogLine("Requested memory: ", rf"Requested memory: .{{0,40}}, {NUMBER} GiB", "requested"),
        LogLine("gpu_memory_utilization (", rf"ation \([0-9.]+\) = {NUMBER}GiB", "requested"),
        LogLine("apturing finished", rf"apturing finished in .{{0,40}}took {NUMBER} GiB", "graphs"),
        LogLine("CUDA graph memory", rf"stimated CUDA graph memory: {NUMBER} GiB", "graphs_ahead"),
        LogLine("on startup", _FREE, "free", "total"),
        LogLine("total_gpu_memory", rf"total_gpu_memory \(?\s{{0,8}}{NUMBER}GiB", "total"),
        LogLine("available_kv_cache_m", rf"kv_cache_memory\s{{1,8}}{NUMBER}GiB", "available_gib"),
        LogLine("instance can use", rf"instance can use\s{{1,8}}{NUMBER}GiB", "requested"),
        LogLine("GiB for KV cache on node", rf"\([0-9.]+/{NUMBER}\) GiB for KV", "node_total"),
        LogLine("max_model_len: reduced", rf"reduced from [0-9]+ to {NUMBER} to fit", "context"),
    ),
    numbers=(
        LogLine(
            "gpu_memory_utilization ", rf"gpu_memory_utilization\s{{2,8}}{NUMBER}", "utilisation"
        ),
        LogLine("Using max model len", rf"Using max model len {NUMBER}", "context"),
        LogLine("attention block size", rf"attention block size to {NUMBER}", "state_block"),
        LogLine("GPU memory utilization is", rf"ation is \({NUMBER},", "utilisation"),
        LogLine("gpu_memory_utilization (", rf"utilization \({NUMBER}\)", "utilisation"),
        LogLine(
            "The current --gpu", rf"The current --gpu-memory-utilization={NUMBER}\d*", "utilisation"
        ),
        LogLine(
            "--gpu-memory-utilization from ", rf"utilization from {NUMBER} to [0-9]", "utilisation"
        ),
        LogLine(
            "desired GPU memory", rf"desired GPU memory utilization \({NUMBER},", "utilisation"
        ),
    ),
    versions=(
        LogLine("LLM engine (", r"LLM engine \(v?([0-9][^\s),]{0,40})\)"),
        LogLine("API server version", r"vLLM API server version:? ?v?([0-9][^\s,]{0,40})"),
        LogLine(" version ", r"(?:█|\]) {1,40}version v?([0-9]+\.[0-9]+[^\s,]{0,40})"),
        LogLine("vLLM Version", r"vLLM Version\s{0,40}:?\s{1,4}v?([0-9][^\s,]{0,40})"),
        LogLine("vllm==", r"vllm==([0-9]+\.[^\s,]{1,30})"),
        LogLine(
            "vLLM ", r"vLLM [^\n]{0,30}?[Vv]ersion\s{0,20}:?\s{0,4}v?([0-9]+\.[0-9][^\s,]{0,30})"
        ),
        LogLine("vLLM", r"vLLM[ =@:-]{1,3}v?([0-9]+\.[0-9]+\.[0-9][^\s,)]{0,30})"),
        LogLine("vllm-openai", r"vllm-openai[a-z-]{0,12}:v?([0-9]+\.[0-9]+[^\s,'\"]{0,30})"),
        LogLine(
            "release-repo:", r"vllm-[a-z0-9-]{0,20}release-repo:v?([0-9]+\.[0-9][^\s,'\"]{0,9})"
        ),
        LogLine("vllm", r"vllm(?:[=@:_ -]{0,3}|/vllm:)v?([0-9]+\.[0-9]+\.[0-9][^\s,'\")_]{0,30})"),
    ),
    names=(
        LogLine("Starting to load model", r"Starting to load model (\S{1,200}?)\.{3}"),
        LogLine("LLM(", r"\bLLM\(['\"]([^'\"]{1,200})['\"]"),
        LogLine("vllm serve", rf"vllm serve\s{{1,8}}{WORD}"),
        LogLine("█  model ", rf"█ {{1,8}}model {{1,8}}{WORD}"),  # of the banner
        SERVED_AS,
    ),
    failures=_FAILURES,
    phases=(
        *(("_dummy_sampler_run", "step"), ("capture_model", "graphs"), ("profile_run", "profile")),
        *(("determine_available_memory", "profile"), ("determine_num_available", "profile")),
        *(("initialize_from_config", "step"), ("in load_model", "weights")),
        *(("load_weights", "weights"), ("create_weights", "weights"), ("execute_model", "step")),
    ),
    told=("args: ", "with config:", "vllm serve", "api_server", "Namespace("),
    context_option="--max-model-len",
    serves=("Application startup complete",),
    settings={
        **{"model": "model", "model_tag": "model"},
        **{"max_seq_len": "context", "max_model_len": "context"},
        **{"tensor_parallel_size": "tp", "pipeline_parallel_size": "pp"},
        **{"decode_context_parallel_size": "dcp", "prefill_context_parallel_size": "pcp"},
        **{"block_size": "block_size", "kv_cache_dtype": "kv_dtype", "dtype": "dtype"},
        **{"quantization": "quantization", "gpu_memory_utilization": "utilisation"},
        **{"max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens"},
        **{"enforce_eager": "enforce_eager", "enable_prefix_caching": "caches_prefixes"},
        **{"mamba_cache_mode": "mamba_cache_mode", "kv_cache_memory_bytes": "kv_memory"},
        **{"data_parallel_size": "dp", "enable_expert_parallel": "enable_expert_parallel"},
        **{"enable_lora": "enable_lora", "max_loras": "max_loras"},
        **{"max_lora_rank": "max_lora_rank", "fully_sharded_loras": "fully_sharded_loras"},
        **{"cpu_offload_gb": "cpu_offload_gb"},
        **{"speculative_model": "speculative_model", "num_speculative_tokens": "speculated"},
        "async_scheduling": "async_scheduling",
        **{"disable_hybrid_kv_cache_manager": "disable_hybrid_kv_cache_manager"},
    },
    others=(
        ("Hybrid KV cache manager is disabled", _hybrid),
        ("Mamba cache mode", _state_mode),
        ("Using FlashInfer", _sampler),
        (_OVERRIDE, _overridden),
        *(("Using V2 Model Runner", _second_runner), ("detected platform", _platform)),
        ("nvidia/vllm:", _image_of_nvidia),
        *(("--runner pooling", _pools), ("task='embed'", _pools)),
        *(("CPU KV cache size", _on_cpu), ("GiB for KV cache on node", _on_cpu)),
        ("CompressedTensorsWNA16", _packed),
    ),
    finish=_finish,
    own_account=_own_account,
    terms=(
        *(("weights_gib", "weights"), ("activations", "activations"), ("non_torch", "non_torch")),
        ("graphs_ahead", "cuda_graphs"),
    ),
    other_counts=_other_counts,
    other_memory=_other_memory,
)
