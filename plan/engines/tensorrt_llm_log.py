"""TensorRT-LLM's start-up log: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py."""

from .start_log import NUMBER, WORD, FailureLine, LogLine, StartLog

LOG = StartLog(
    engine="tensorrt-llm",
    looked_for="`Allocated … for max tokens in paged KV cache (…)` (TensorRT-LLM)",
    signs=("[TensorRT-LLM]", "[TRT-LLM]", "trtllm-serve", "paged KV cache"),
    starts=("[TensorRT-LLM] TensorRT-LLM version",),
    figures=(
        LogLine(
            "tokens in paged KV cache (",
            rf"llocated {NUMBER} GiB for max tokens in paged KV cache \({NUMBER}\)",
            *("available_gib", "kv_tokens"),
        ),
        LogLine("primary pool: ", rf"KV cache primary pool: {NUMBER}", "num_blocks"),
        LogLine("primary blocks=", rf"primary blocks={NUMBER}", "num_blocks"),
        LogLine(
            "in paged kv cache: total",
            rf"total: {NUMBER} GiB, available: {NUMBER} GiB",
            "total",
            "free",
        ),
        LogLine("device total memory ", rf"device total memory {NUMBER} GiB", "total"),
        LogLine("kv size ", rf"kv size(?: per token)? is {NUMBER}", "token_bytes"),
        LogLine("for model weights", rf"uses {NUMBER} GB for model weights", "weights_gib"),
    ),
    numbers=(
        LogLine("tokens per block", rf"tokens per block(?::|=) ?{NUMBER}", "block_size"),
        LogLine("max_seq_len=", rf"max_seq_len={NUMBER}", "context"),
        LogLine("fraction is set", rf"fraction is set {NUMBER}", "utilisation"),
    ),
    versions=(
        LogLine("TensorRT-LLM version", r"TensorRT-LLM version: ([0-9][^\s,]{0,40})"),
        LogLine("tensorrt_llm==", r"tensorrt_llm==([0-9][^\s,]{0,40})"),
        LogLine("tensorrt-llm/release", r"tensorrt-llm/release:([0-9][^\s,'\"]{0,40})"),
    ),
    names=(
        LogLine("trtllm-serve", rf"trtllm-serve (?:serve )?{WORD}"),
        LogLine("Model:", rf"^Model:\s{{1,40}}{WORD}"),
        LogLine("models--", r"/(models--[^/\s]{1,150})/snapshots/"),
    ),
    failures=(
        FailureLine("runtime", LogLine("error in ::cudaMalloc", r"cudaMalloc.{0,60}out of memory")),
        FailureLine("runtime", LogLine("error in cudaMalloc", r"cudaMalloc.{0,60}out of memory")),
    ),
    context_option="--max_seq_len",
    serves=("Engine loaded and ready",),
    settings={"tp_size": "tp", "pp_size": "pp", "max_seq_len": "context"},
    told=("trtllm-serve",),
)
