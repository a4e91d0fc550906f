"""TensorRT-LLM's start-up log: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp and
tensorrt_llm/_torch/pyexecutor/_util.py."""

import re

from ..request import PlanRequest
from .start_log import NUMBER, WORD, FailureLine, Log, LogLine, OwnAccount, StartLog, number
from .tensorrt_llm import FREE_FRACTION

_COMPONENT = re.compile(r"component could not be created: ([A-Za-z0-9 ()_-]{1,60})")
_MODEL = re.compile(rf"^[> ]{{0,4}}Model: {NUMBER} / {NUMBER}")


def _own_account(log: Log, request: PlanRequest) -> OwnAccount | None:
    """free_gpu_memory_fraction of what is free once the model is there."""
    if "left" not in log.figures:
        return None
    left, share = log.figures["left"], request.utilisation or FREE_FRACTION
    return OwnAccount(gib=left * share, addends=1, words=f"{left:g} GiB left x {share:g}")


def _of_a_benchmark(log: Log, line: str) -> None:
    """trtllm-bench says what the engine was built with."""
    for words, name in (("KV Cache Dtype:", "kv_dtype"), ("Quantization:", "quantization")):
        if (match := re.search(rf"^{words}\s{{1,8}}([A-Za-z0-9_]{{2,20}})", line)) is not None:
            log.say(name, match[1].lower(), 3)


def _profiled(log: Log, line: str) -> None:
    """The cache that was there while memory was profiled is made anew."""
    for name in ("available_gib", "kv_tokens", "num_blocks"):
        log.figures.pop(name, None)


def _component(log: Log, line: str) -> None:
    """What py_executor_creator.py had no memory for."""
    if match := _COMPONENT.search(line):
        log.settings["component"] = match[1].strip()


def _model(log: Log, line: str) -> None:
    """Free before and after the model was loaded, with what else was made meanwhile."""
    if match := _MODEL.search(line):
        log.least("model_gib", number(match[1]) - number(match[2]))


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
        LogLine(
            "in paged kv cache: total",
            rf"kv cache: total: [0-9.]{{1,12}} GiB, available: {NUMBER} GiB",
            "left",
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
        LogLine("MPI size: ", rf"MPI size: {NUMBER}", "tp_seen"),
        LogLine("TP Size:", rf"TP Size:\s{{1,8}}{NUMBER}", "tp"),
        LogLine("PP Size:", rf"PP Size:\s{{1,8}}{NUMBER}", "pp"),
        LogLine("maxSequenceLen: ", rf"TRTGptModel maxSequenceLen: {NUMBER}", "context"),
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
    others=(
        *(("component could not be created", _component), ("Model: ", _model)),
        ("Peak memory during memory usage profiling", _profiled),
        *(("KV Cache Dtype:", _of_a_benchmark), ("Quantization:", _of_a_benchmark)),
    ),
    own_account=_own_account,
    context_option="--max_seq_len",
    serves=("Engine loaded and ready",),
    terms=(("weights_gib", "weights"), ("model_gib", "weights")),
    settings={"tp_size": "tp", "pp_size": "pp", "max_seq_len": "context"},
    told=("trtllm-serve",),
)
