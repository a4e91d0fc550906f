"""The start-up log of llama.cpp, and of Ollama, which runs it: src/llama-kv-cache*.cpp,
src/llama-context.cpp and src/llama-model.cpp of llama.cpp, and of older ones llama.cpp itself;
llm/memory.go, ml/device.go and runner of Ollama."""

import re

from ..start_log import NUMBER, SIZE, WORD, FailureLine, Log, LogLine, StartLog, number, quantity

_MIB = 1 / 1024
# A cache, of which models with windows have two: cells of a stream, layers, sequences and streams.
_CACHE = re.compile(
    rf"size = +{NUMBER} MiB \( *([0-9]+) cells, +([0-9]+) layers, +([0-9]+)(?:/ ?([0-9]+))? seqs\)"
    r"(?:, K \(([a-z0-9_]{2,8})\).{0,40}V \(([a-z0-9_]{2,8})\))?"
)
_SELF = re.compile(rf"KV self size += +{NUMBER} MiB(?:, (?:K|c\^KV) \(([a-z0-9_]{{2,8}})\))?")
_BUFFER = re.compile(rf"([A-Za-z_]{{2,20}}[0-9]*) (?:model |KV )?buffer size = +{NUMBER} MiB")
_KINDS = {'msg="kv cache"': "kv_gib", 'msg="model weights"': "weights_gib"}
_DEVICE_SIZE = re.compile(rf'device=(\S{{1,40}}) size="{SIZE}"')
_OFFLOAD = re.compile(rf'memory\.required\.kv="{SIZE}"')


def _cache(log: Log, line: str) -> None:
    match = _CACHE.search(line)
    if match is None:
        return
    size, cells, _, seqs, streams, keys, values = match.groups()
    if "recurrent" in line:
        log.add("states_gib", number(size) * _MIB)
        return
    _add_cache(log, number(size) * _MIB)
    log.figures["cells"] = max(float(cells), log.figures.get("cells", 0.0))
    log.say("context", int(log.figures["cells"]), 3)
    log.say("parallel", int(seqs), 3)
    log.say("batch_size", int(streams or seqs), 3)
    if streams and int(streams) < int(seqs):
        log.say("kv_unified", True, 3)
    for name, kind in (("cache_type_k", keys), ("cache_type_v", values)):
        if kind:
            log.say(name, kind, 3)


def _self(log: Log, line: str) -> None:
    if match := _SELF.search(line):
        _add_cache(log, number(match[1]) * _MIB)
        if match[2]:
            log.say("kv_dtype", match[2], 3)


def _add_cache(log: Log, gib: float) -> None:
    log.add("kv_gib", gib)
    log.steps["kv_gib"] = log.steps.get("kv_gib", 0.0) + 0.005 * _MIB


def _buffer(log: Log, line: str) -> None:
    """Of the weights: what lies in the host's memory is the same file, mapped."""
    if "model buffer size" not in line and "load_tensors" not in line:
        return
    if match := _BUFFER.search(line):
        log.add("weights_gib", number(match[2]) * _MIB)
        if not match[1].startswith(("CPU", "CUDA_Host")):
            log.add("on_device_gib", number(match[2]) * _MIB)
        log.steps["weights_gib"] = log.steps.get("weights_gib", 0.0) + 0.005 * _MIB


def _of_device(log: Log, line: str) -> None:
    """Ollama's sizes of each device have one digit; the last set is the one that is loaded."""
    name = next((name for words, name in _KINDS.items() if words in line), None)
    if name is None or (match := _DEVICE_SIZE.search(line)) is None:
        return
    key = f"{name} of {match[1]}"
    if key in log.figures:  # planned once more
        for known in [n for n in log.figures if n.startswith(f"{name} of ")]:
            del log.figures[known]
    log.figures[key] = quantity(match[2])
    found = [value for known, value in log.figures.items() if known.startswith(f"{name} of ")]
    log.figures[name] = sum(found)
    log.steps[name] = 0.05 * len(found) if match[2].endswith("GiB") else 0.05 * _MIB * len(found)


def _offload(log: Log, line: str) -> None:
    if match := _OFFLOAD.search(line):
        log.figures.setdefault("kv_gib", quantity(match[1]))
        log.steps.setdefault("kv_gib", 0.05 if match[1].endswith("GiB") else 0.05 * _MIB)


def _finish(log: Log) -> None:
    """A size in GiB that is printed with fewer digits cannot be told to 0.005."""
    for name in [known for known in log.figures if " of " in known]:
        del log.figures[name]
    if "parallel" not in log.settings:  # of an older one, which had a single slot
        log.say("parallel", log.settings.get("n_seq_max", 1))


LOG = StartLog(
    engine="llama.cpp",
    looked_for="`llama_kv_cache: size`, `KV self size`, `model buffer size` (llama.cpp),"
    ' `msg="kv cache"`, `memory.required.kv` (Ollama)',
    signs=(
        *("llama_kv_cache", "llama_new_context", "llama_context:", "llm_load_", "llama-server"),
        *(
            "KV self size",
            'msg="kv cache"',
            'msg="offload to',
            "msg=offload",
            "load_tensors:",
            "llama_model_load",
        ),
        *("print_info:", "ggml_backend", "ggml_cuda_init", "alloc_tensor_range", "ollama"),
    ),
    starts=("build: ", "starting llama server", 'msg="starting runner"', "main: loading model"),
    of_one_start=("context", "batch_size", "kv_dtype", "parallel", "kv_unified"),
    figures=(
        LogLine(
            "compute buffer size",
            rf"CUDA0 compute buffer size = +{NUMBER} MiB",
            "compute_gib",
            scale=_MIB,
        ),
        LogLine("model size  ", rf"model size +[=:] +{SIZE}", "file_gib"),
        LogLine("file size ", rf"file size +[=:] +{SIZE}", "file_gib"),
        LogLine("MiB free", rf"using device .{{0,200}} - {NUMBER} MiB free", "free", scale=_MIB),
    ),
    numbers=(
        LogLine("n_ctx ", rf"n_ctx +[=:] +{NUMBER}", "n_ctx"),
        LogLine("n_seq_max ", rf"n_seq_max +[=:] +{NUMBER}", "n_seq_max"),
        LogLine("KvSize:", rf"KvSize:{NUMBER}", "n_ctx"),
    ),
    versions=(
        LogLine("(version ", r"Listening on \S{1,60} \(version ([0-9][^\s)]{0,20})\)"),
        LogLine("build: ", r"build: ([0-9]{3,6}) \("),
        LogLine("llama.cpp:", r"llama\.cpp:[a-z-]{0,20}b([0-9]{3,6})"),
    ),
    names=(
        LogLine("general.name", r"general\.name(?:\s+str)?\s*=\s*(\S[^\n]{0,150})"),
        LogLine("general.basename", r"general\.basename\s+str\s*=\s*(\S[^\n]{0,150})"),
        LogLine("llama-server", rf"(?:-m|--model|-hf) {WORD}"),
        LogLine("llama-cli", rf"(?:-m|--model|-hf) {WORD}"),
        LogLine("ollama run", rf"ollama run {WORD}"),
        LogLine("with model '", r"with model '([^']{1,300})'"),
        LogLine("loading model '", r"loading model '([^']{1,300})'"),
        LogLine("tensors from", r"key-value pairs and [0-9]+ tensors from (\S{1,300}\.gguf)"),
    ),
    failures=(
        FailureLine(
            "buffer",
            LogLine(
                "failed: out of memory",
                rf"allocating {NUMBER} MiB on device [0-9]+: cudaMalloc failed",
                "tried",
                scale=_MIB,
            ),
        ),
        FailureLine(
            "cells", LogLine("buffer for kv cache", r"failed to allocate buffer for kv cache")
        ),
        FailureLine(
            "compute",
            LogLine("allocate compute buffers", r"failed to allocate compute buffers"),
        ),
        FailureLine(
            "host",
            LogLine(
                "requires more system memory",
                rf"requires more system memory \({SIZE}\) than is available \({SIZE}\)",
                *("needed", "available"),
            ),
        ),
    ),
    context_option="-c",
    serves=("server is listening", "llama runner started", "load_model: initializing"),
    settings={"cache_type_k": "kv_dtype", "ctx_size": "n_ctx", "n_gpu_layers": "gpu_layers"},
    others=(
        ("cells,", _cache),
        ("KV self size", _self),
        ("buffer size =", _buffer),
        ('size="', _of_device),
        ("memory.required.kv", _offload),
    ),
    finish=_finish,
    terms=(("weights_gib", "weights"),),
)
