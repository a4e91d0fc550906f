"""TensorRT-LLM's start-up log: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py."""

import re

from .start_log import NUMBER, WORD, FailureLine, Log, LogLine, StartLog, number

_COMPONENT = re.compile(r"component could not be created: ([A-Za-z0-9 ()_-]{1,60})")
_MODEL = re.compile(rf"^[> ]{{0,4}}Model: {NUMBER} / {NUMBER}")


def _component(log: Log, line: str) -> None:
    """What py_executor_creator.py had no memory for."""
    if match := _COMPONENT.search(line):
        log.settings["component"] = match[1].strip()


def _model(log: Log, line: str) -> None:
    """Free before and after the model was loaded."""
    if match := _MODEL.search(line):
        log.least("weights_gib", number(match[1]) - number(match[2]))
        log.steps["weights_gib"] = 0.5  # other buffers are made meanwhile


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
        LogLine("Total GPU memory (GiB)", rf"Total GPU memory \(GiB\): {NUMBER}", "total"),
        LogLine("Free GPU memory before", rf"creation attempt \(GiB\): {NUMBER}", "free"),
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
        FailureLine(
            "runtime", LogLine("due to insufficient GPU memory", "due to insufficient GPU memory")
        ),
        FailureLine(
            "request", LogLine("maxTokensInPagedKvCache must be large", "at least 1 sequence")
        ),
    ),
    others=(("component could not be created", _component), ("Model: ", _model)),
    context_option="--max_seq_len",
    serves=("Engine loaded and ready",),
    terms=(("weights_gib", "weights"),),
    settings={"tp_size": "tp", "pp_size": "pp", "max_seq_len": "context"},
    told=("trtllm-serve",),
)
