"""The start-up log of llama.cpp, and of Ollama, which runs it: src/llama-kv-cache*.cpp,
src/llama-context.cpp and src/llama-model.cpp of llama.cpp, and of older ones llama.cpp itself;
llm/memory.go, ml/device.go and runner of Ollama."""

import re

from headcount.model import limits
from headcount.sources.gguf import Skipped

from ..start_log import NUMBER, SIZE, WORD, FailureLine, Log, LogLine, StartLog, number, quantity

_MIB = 1 / 1024
# A cache, of which models with windows have two: cells of a stream, layers, sequences and streams.
_CACHE = re.compile(
    rf"size = +{NUMBER} MiB \( *([0-9]+) cells, +([0-9]+) layers, +([0-9]+)(?:/ ?([0-9]+))? seqs\)"
    r"(?:, K \(([a-z0-9_]{2,8})\).{0,40}V \(([a-z0-9_]{2,8})\))?"
)
_SELF = re.compile(rf"KV self size += +{NUMBER} MiB(?:, (?:K|c\^KV) \(([a-z0-9_]{{2,8}})\))?")
_BUFFER = re.compile(rf"([A-Za-z_]{{2,20}}[0-9]*) (?:model |KV )?buffer size = +{NUMBER} MiB")
_FREE = re.compile(
    rf"using device (\S{{1,40}}) (?:\((.{{1,60}}?)\) )?.{{0,200}}?- {NUMBER} MiB free"
)
_SHARED = re.compile(r"kv_unified +[=:] +'?(true|false)")
_SHORTS = {
    **{"-c": "n_ctx", "-np": "n_seq_max", "-ngl": "gpu_layers", "-ub": "ubatch_size"},
    **{"-ctk": "cache_type_k", "-ctv": "cache_type_v", "-ncmoe": "n_cpu_moe"},
}
_BY_HAND = ("-ot ", "--override-tensor", "-ts ", "--tensor-split")
_SHORT = re.compile(rf" ({'|'.join(_SHORTS)}) +([0-9]{{1,9}}|[a-z][a-z0-9_]{{1,7}})(?=\s|$)")
_OLLAMA = re.compile(r"Listening on \S{1,60} \(version ([0-9][^\s)]{0,20})\)")
_REQUEST = re.compile(r"\b(KvSize|Parallel|KvCacheType):([0-9]{1,9}|[a-z][a-z0-9_]{1,7})(?= )")
_FILE_TYPE = re.compile(
    r"(?:file type|model ftype) += (?:all |mostly )?(BF16|F16|F32|MXFP4"
    r"|I?Q[0-9](?:_[A-Z0-9]+)*(?: - (?:Small|Medium|Large)(?= |$))?)"
)
_KINDS = {'msg="kv cache"': "kv_gib", 'msg="model weights"': "weights_gib"}
_DEVICE_SIZE = re.compile(rf'(?:device|buffer)=(\S{{1,40}}) size="{SIZE}"')
_OFFLOAD = re.compile(rf'memory\.required\.kv="{SIZE}"')


_LOADED = "loaded meta data with"
_KEY = re.compile(
    r"- kv +[0-9]+: +([A-Za-z0-9_.-]{1,120}) +(?:(str|bool|[uif](?:8|16|32|64))|arr\[([a-z0-9]+),"
    r"([0-9]{1,9})\]) += (.{0,300})"
)
_PRINTED = re.compile(
    r"(?:print_info|llm_load_print_meta): ([a-z_]{2,24}) += (\[[0-9, ]{1,4000}\]|[a-z0-9_.-]{1,40})"
)
_DRAFT = "draft_loads"


def _file(log: Log, line: str) -> None:
    """The key-values of a file begin: of one that is loaded beside a cache, as a draft is, they are
    not the model's."""
    if "kv_gib" in log.figures:
        log.settings[_DRAFT] = 1
    elif _DRAFT not in log.settings:
        log.metadata.clear()


def _key(log: Log, line: str) -> None:
    match = _KEY.search(line)
    if match is None or _DRAFT in log.settings or len(log.metadata) >= limits.GGUF_KEYS.most:
        return
    name, kind, items, count, text = match.groups()
    log.metadata[name] = _list(text, items, int(count)) if items else _plain(text, kind)


def _plain(text: str, kind: str) -> str | int | float | bool | None:
    try:
        if kind == "bool":
            return text.strip() == "true"
        if kind == "str":
            return text.strip()
        return float(text) if kind.startswith("f") else int(text)
    except ValueError:
        return None


def _list(text: str, items: str, count: int) -> tuple[int, ...] | Skipped:
    """A list that is not printed whole is skipped."""
    parts = [part.strip() for part in text.strip().strip("[]").split(",")]
    known = {"true": 1, "false": 0}
    try:
        found = tuple(known[part] if part in known else int(part) for part in parts)
    except ValueError:
        return Skipped(count)
    return found if len(found) == count and items != "str" else Skipped(count)


def _print(log: Log, line: str) -> None:
    match = _PRINTED.search(line)
    if match is None or _DRAFT in log.settings or len(log.metadata) >= limits.GGUF_KEYS.most:
        return
    name, text = match.groups()
    if text.startswith("["):
        log.metadata[name] = _list(text, "i32", text.count(",") + 1)
    else:
        log.metadata[name] = int(text) if text.isdecimal() else text


def _cache(log: Log, line: str) -> None:
    match = _CACHE.search(line)
    if match is None or _DRAFT in log.settings:
        return
    size, cells, _, seqs, streams, keys, values = match.groups()
    if "recurrent" in line:
        log.add("states_gib", number(size) * _MIB)
        return
    _add_cache(log, number(size) * _MIB)
    log.figures["cells"] = max(float(cells), log.figures.get("cells", 0.0))
    log.say("context", int(log.figures["cells"]), 3)
    log.say("parallel", int(seqs), 3)
    log.say("batch_size", int(streams or 1), 3)  # before streams, all shared one
    log.say("kv_unified", str(int(streams or 1) < int(seqs)), 3)
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
    """Of the weights: what lies in the host's memory is the same file, mapped; what is packed anew
    for its instructions is a copy."""
    if "model buffer size" not in line and "load_tensors" not in line:
        return
    if (match := _BUFFER.search(line)) and not match[1].endswith("_REPACK"):
        log.add("weights_gib", number(match[2]) * _MIB)
        if not _is_of_host(match[1]):
            log.add("on_device_gib", number(match[2]) * _MIB)
            log.add(f"placed on {match[1]}", number(match[2]) * _MIB)
        log.steps["weights_gib"] = log.steps.get("weights_gib", 0.0) + 0.005 * _MIB


def _is_of_host(buffer: str) -> bool:
    return buffer.startswith(("CPU", "AMX")) or buffer.endswith("_Host")


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


def _free(log: Log, line: str) -> None:
    """Of each device; of several the least counts for the whole."""
    if match := _FREE.search(line):
        gib = number(match[3]) * _MIB
        log.figures[f"free of {match[1]}"] = gib
        log.least("free", gib)
        if match[2] and "device_name" not in log.settings:
            log.say("device_name", match[2])


def _shared(log: Log, line: str) -> None:
    if match := _SHARED.search(line):
        log.say("kv_unified", match[1])


def _command(log: Log, line: str) -> None:
    """Options of few letters, which other programs have for something else."""
    if any(words in line for words in _BY_HAND):
        log.settings["placed_by_hand"] = 1
    for words, text in _SHORT.findall(line):
        name = _SHORTS[words]
        if name.startswith("cache_type") != text.isdecimal():
            log.say(name, int(text) if text.isdecimal() else text, 2)


def _ollama(log: Log, line: str) -> None:
    """Its own version, and what it asks its runner for."""
    if match := _OLLAMA.search(line):
        log.say("served_by", f"Ollama {match[1]}")
    for name, text in _REQUEST.findall(line):
        if name == "KvCacheType":
            log.say("kv_dtype", text, 3)
        elif text.isdecimal():
            log.say({"KvSize": "n_ctx", "Parallel": "n_seq_max"}[name], int(text), 3)


def _again(log: Log, line: str) -> None:
    """Ollama tries once more, with fewer layers: what failed before does not count."""
    for kind in ("buffer", "tensors", "cells", "compute"):
        log.failures.pop(kind, None)


def _file_type(log: Log, line: str) -> None:
    if match := _FILE_TYPE.search(line):
        name = match[1].replace(" - ", "_").replace("Small", "S").replace("Medium", "M")
        name = {"MXFP4": "mxfp4_moe"}.get(name, name.replace("Large", "L").lower())
        log.say("quantization", name, 3)


def _finish(log: Log) -> None:
    """What was asked for where no cache was made: all slots share it, but in those that say that
    they do not. A log of an older one, which had a single slot, names none."""
    _of_full_device(log)
    for name in [known for known in log.figures if " of " in known or " on " in known]:
        del log.figures[name]
    settings = log.settings
    slots = max(1, int(settings.get("n_seq_max", 1)))
    asked, each = int(settings.get("n_ctx", 0)), int(settings.get("n_ctx_seq", 0))
    is_shared = str(settings.get("kv_unified", "true")).casefold() == "true"
    if "context" not in settings and (asked or each):
        own = asked if is_shared else asked // slots
        log.say("context", own or each)
        log.say("batch_size", 1 if is_shared else slots)
    if "parallel" not in settings:
        log.say("parallel", slots)
    settings["kv_unified"] = is_shared and int(settings["parallel"]) > 1


def _of_full_device(log: Log) -> None:
    """Of several devices, what the one had for which an allocation failed."""
    devices = {name.split()[-1] for name in log.figures if name.startswith("placed on ")}
    log.settings["devices"] = max(1, len(devices))
    failure = log.failures.get("buffer")
    if failure is None or "device" not in failure.values or len(devices) < 2:
        return
    number_of = int(failure.values["device"])
    name = next((n for n in sorted(devices) if n.lstrip("CUDAROmVulkanSY") == str(number_of)), "")
    for figure, own in (("free", f"free of {name}"), ("on_device_gib", f"placed on {name}")):
        if own in log.figures:
            log.figures[figure] = log.figures[own]


# An allocation on a device: CUDA and ROCm, Vulkan, Metal, and one of which no size is said.
_BUFFERS_REFUSED = (
    LogLine(
        "failed: out of memory",
        rf"allocating {SIZE} on device ([0-9]+): cudaMalloc failed",
        *("tried", "device"),
    ),
    LogLine(
        "memory allocation of size",
        r"memory allocation of size ([0-9]{1,15}) failed",
        "tried",
        scale=2**-30,
    ),
    LogLine("to allocate buffer, size", rf"to allocate buffer, size = +{SIZE}", "tried"),
    LogLine("CUDA error: out of memory", r"(?<!Error: )CUDA error: out of memory"),
)

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
    of_one_start=("context", "batch_size", "kv_dtype", "parallel", "kv_unified", _DRAFT),
    figures=(
        LogLine(
            "compute buffer size",
            rf"CUDA0 compute buffer size = +{NUMBER} MiB",
            "compute_gib",
            scale=_MIB,
        ),
        LogLine("model size  ", rf"model size +[=:] +{SIZE}", "file_gib"),
        LogLine("file size ", rf"file size +[=:] +{SIZE}", "file_gib"),
    ),
    numbers=(
        LogLine("n_ctx ", rf"n_ctx +[=:] +{NUMBER}", "n_ctx"),
        LogLine("n_ctx_", rf"n_ctx_(?:per_)?seq +[=:] +{NUMBER}", "n_ctx_seq"),
        LogLine("n_seq_max ", rf"n_seq_max +[=:] +{NUMBER}", "n_seq_max"),
        LogLine("n_ubatch ", rf"n_ubatch +[=:] +{NUMBER}", "ubatch_size"),
        LogLine("offloaded ", rf"offloaded {NUMBER}/[0-9]+ layers to GPU", "gpu_layers"),
        LogLine("kv_size = ", rf"kv_size = {NUMBER}", "n_ctx"),
    ),
    versions=(
        LogLine("build: ", r"build: ([0-9]{3,6}) \("),
        LogLine("build_info: ", r"build_info: b([0-9]{3,6})-"),
        LogLine("version: ", r"\bversion: ([0-9]{3,6}) \([0-9a-f]{6,12}\)"),
        LogLine("llama.cpp:", r"llama\.cpp:[a-z0-9-]{0,24}?-b([0-9]{3,6})\b"),
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
        *(FailureLine("buffer", line) for line in _BUFFERS_REFUSED),
        *(
            FailureLine("tensors", LogLine(words, words))
            for words in ("alloc_tensor_range: failed to allocate", "error loading model: unable")
        ),
        *(
            FailureLine("cells", LogLine(words, words))
            for words in ("buffer for kv cache", "failed for self-attention cache")
        ),
        FailureLine("compute", LogLine("allocate compute", r"to allocate compute (?:pp )?buffers")),
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
    settings={
        **{"cache_type_k": "cache_type_k", "cache_type_v": "cache_type_v", "ctx_size": "n_ctx"},
        **{"n_gpu_layers": "gpu_layers", "parallel": "n_seq_max", "kv_unified": "kv_unified"},
        **{"n_cpu_moe": "n_cpu_moe", "ubatch_size": "ubatch_size"},
    },
    others=(
        *((_LOADED, _file), ("- kv ", _key), ("print_info: ", _print)),
        *(("llm_load_print_meta: ", _print), ("cells,", _cache), ("MiB free", _free)),
        *(("file type", _file_type), ("model ftype", _file_type), ("(version ", _ollama)),
        *(
            ("kv_unified ", _shared),
            ("KvSize:", _ollama),
            ("msg=load request", _again),
            ("llama-server", _command),
            ("llama-cli", _command),
        ),
        ("KV self size", _self),
        ("buffer size =", _buffer),
        ('size="', _of_device),
        ("memory.required.kv", _offload),
    ),
    finish=_finish,
    terms=(("weights_gib", "weights"),),
)
