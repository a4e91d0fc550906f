"""What a start-up log says: figures of memory, and the settings that they came of."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

Setting = int | float | str


@dataclass(kw_only=True, slots=True)
class Log:
    """`figures` are logged values by name, of the rank with the least where several log; `settings`
    what the start was told or found out. Sizes are in GiB as logged. `pools` are SGLang's: GiB by
    the tokens that each keeps."""

    engine: str = "vllm"
    figures: dict[str, float] = field(default_factory=dict)
    settings: dict[str, Setting] = field(default_factory=dict)
    pools: dict[int, float] = field(default_factory=dict)

    def least(self, name: str, value: float) -> None:
        self.figures[name] = min(value, self.figures.get(name, value))


FIGURES = ("available_gib", "kv_tokens", "num_blocks", "concurrency", "weights_gib")
LOOKED_FOR = (
    "`Available KV cache memory`, `GPU KV cache size`, `Maximum concurrency`, `# GPU blocks`,"
    " `Model loading took` (vLLM); `KV Cache is allocated`, `max_total_num_tokens`,"
    " `Load weight end` (SGLang)"
)
_NUMBER = r"([0-9][0-9,]{0,30}(?:\.[0-9]{1,12})?|-[0-9]{1,12}\.[0-9]{1,12})"
_TEXT = r"['\"]?([^\s'\",)}\]]{1,300})['\"]?"


def _number(text: str) -> float:
    return float(text.replace(",", ""))


# words that a line must have -> pattern -> what becomes of its groups; the words come first, since
# a plain search is much faster than a pattern. From vllm/v1/worker, vllm/v1/core and
# sglang/srt/model_executor of the versions whose rules are known.
_FIGURE_LINES: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = tuple(
    (words, re.compile(pattern), names)
    for words, pattern, names in (
        ("KV cache memory", rf"vailable KV cache memory: {_NUMBER} ?GiB", ("available_gib",)),
        ("reserved for KV", rf"reserved for KV Cache is {_NUMBER} ?GiB", ("available_gib",)),
        ("memory in use is", rf"kv cache memory in use is {_NUMBER} ?GiB", ("in_use_gib",)),
        ("GPU KV cache size", rf"GPU KV cache size: {_NUMBER} tokens", ("kv_tokens",)),
        (
            "aximum concurrency",
            rf"aximum concurrency for {_NUMBER} tokens per request: {_NUMBER}x",
            ("context", "concurrency"),
        ),
        ("GPU blocks", rf"# (?:GPU|cuda) blocks: {_NUMBER}", ("num_blocks",)),
        ("num_gpu_blocks", rf"num_gpu_blocks(?: is:|['\"]?[:=]) ?{_NUMBER}", ("num_blocks",)),
        ("oading took", rf"[Mm]odel loading took {_NUMBER} ?Gi?B", ("weights_gib",)),
        ("weights took", rf"[Ll]oading model weights took {_NUMBER} ?Gi?B", ("weights_gib",)),
        ("weights take", rf"model weights take {_NUMBER} ?GiB", ("weights_gib",)),
        ("for weight", rf"{_NUMBER} GiB for weight", ("weights_gib",)),
        ("apturing finished", rf"apturing finished in .{{0,40}}took {_NUMBER} GiB", ("graphs",)),
        ("CUDA graph memory", rf"stimated CUDA graph memory: {_NUMBER} GiB", ("graphs",)),
        ("Free memory on device", rf"on device.{{0,20}}\({_NUMBER}/{_NUMBER} GiB\)", ("", "total")),
        ("total_gpu_memory", rf"total_gpu_memory \({_NUMBER}GiB\)", ("total",)),
        ("Load weight end", rf"Load weight end.{{0,300}}mem usage={_NUMBER} GB", ("weights_gib",)),
        ("max_total_num_tokens", rf"max_total_num_tokens={_NUMBER}", ("kv_tokens",)),
    )
)
# Settings: names as engines print them -> the name here.
_SETTINGS = {
    **{"model": "model", "model_path": "model", "model_tag": "model"},
    **{"max_seq_len": "context", "max_model_len": "context", "context_length": "context"},
    **{"context_len": "context"},
    **{"tensor_parallel_size": "tp", "tp_size": "tp", "pipeline_parallel_size": "pp"},
    **{"pp_size": "pp", "decode_context_parallel_size": "dcp"},
    **{"prefill_context_parallel_size": "pcp", "block_size": "block_size"},
    **{"page_size": "block_size", "kv_cache_dtype": "kv_dtype", "quantization": "quantization"},
    **{"gpu_memory_utilization": "utilisation", "mem_fraction_static": "utilisation"},
    **{"max_num_seqs": "max_num_seqs", "max_num_batched_tokens": "max_num_batched_tokens"},
    **{"enforce_eager": "enforce_eager", "dtype": "dtype"},
    **{"enable_prefix_caching": "caches_prefixes", "mamba_cache_mode": "mamba_cache_mode"},
    **{"num_speculative_tokens": "speculated"},
}
_SETTING = re.compile(
    rf"(?<![A-Za-z_])['\"]?({'|'.join(_SETTINGS)})['\"]?(?:=|: ){_TEXT}", re.ASCII
)
_OPTION = re.compile(
    rf"--({'|'.join(name.replace('_', '-') for name in _SETTINGS)}|tp|pp)[ =]{_TEXT}", re.ASCII
)
_SERVE = re.compile(rf"vllm serve {_TEXT}")
_STATE_MODE = re.compile(r"Mamba cache mode is set to '(none|align|all)'")
_SHORT = {"tp": "tp", "pp": "pp"}
_VERSIONS = (
    ("LLM engine (", re.compile(r"LLM engine \(v?([0-9][^\s),]{0,40})\)")),
    (" version", re.compile(r"(?:vLLM|SGLang)[^\n]{0,30}? version:? ?v?([0-9][^\s,]{0,40})")),
    ("vllm", re.compile(r"vllm[=-]{1,2}([0-9]+\.[^\s,]{1,30})")),
    ("sglang", re.compile(r"sglang[=-]{1,2}([0-9]+\.[^\s,]{1,30})")),
)
_OVERRIDE = "Overriding num_gpu_blocks="
_BLOCKS_FOUND = re.compile(rf"num_gpu_blocks={_NUMBER} with num_gpu_blocks_override={_NUMBER}")
_OTHERS: tuple[tuple[str, re.Pattern[str], str], ...] = (
    ("Using max model len", re.compile(rf"Using max model len {_NUMBER}"), "context"),
    ("attention block size", re.compile(rf"attention block size to {_NUMBER}"), "state_block"),
    ("GPU memory utilization is", re.compile(rf"ation is \({_NUMBER},"), "utilisation"),
    ("gpu_memory_utilization (", re.compile(rf"utilization \({_NUMBER}\)"), "utilisation"),
)
# What lines after the one that begins a start say: an earlier start's does not hold for the next.
_OF_ONE_START = ("state_block", "sampler", "disable_hybrid_kv_cache_manager")
# SGLang: a pool of keys and values apart, or of latents.
_POOL = re.compile(
    rf"KV Cache is allocated.{{0,80}}#tokens: {_NUMBER}, (?:K size: {_NUMBER} GB, V size:"
    rf" {_NUMBER} GB|KV size: {_NUMBER} GB)"
)
_START = ("Initializing a V", "Initializing an LLM engine", "server_args=ServerArgs")


def read_log(lines: Iterable[str]) -> Log:
    """The last start in `lines` that has figures, since people paste parts of a log in any order;
    nothing in it is run or trusted beyond its numbers."""
    log = Log()
    earlier: dict[str, float] = {}
    for line in lines:
        if any(words in line for words in _START):
            earlier = dict(log.figures) or earlier
            log.figures.clear()
            log.pools.clear()
            for name in _OF_ONE_START:
                log.settings.pop(name, None)
        _read_engine(log, line)
        _read_figures(log, line)
        _read_settings(log, line)
    if not any(name in log.figures for name in FIGURES):
        log.figures = {**earlier, **log.figures}
    _finish(log)
    return log


def _read_engine(log: Log, line: str) -> None:
    if "ServerArgs(" in line or "sglang" in line or "KV Cache is allocated" in line:
        log.engine = "sglang"
    if "Hybrid KV cache manager is disabled" in line:
        log.settings["disable_hybrid_kv_cache_manager"] = 1
    if "Mamba cache mode" in line and (match := _STATE_MODE.search(line)):
        log.settings["mamba_cache_mode"] = match[1]
    if "FlashInfer" in line and "sampling" in line and "not" not in line.lower():
        log.settings["sampler"] = "flashinfer"
    for words, pattern in _VERSIONS:
        if words in line and (match := pattern.search(line)):
            log.settings["version"] = match[1]
            return


def _read_figures(log: Log, line: str) -> None:
    if _OVERRIDE in line:  # while CUDA graphs are profiled, of 0 blocks; else the user's
        if match := _BLOCKS_FOUND.search(line):
            log.settings["overridden"] = int(_number(match[1])) and int(_number(match[2]))
        return
    if "KV Cache is allocated" in line and (match := _POOL.search(line)):
        _read_pool(log, [_number(text) for text in match.groups() if text])
    for words, pattern, names in _FIGURE_LINES:
        if words in line and (match := pattern.search(line)):
            for name, text in zip(names, match.groups(), strict=True):
                if name == "context":
                    log.settings["context"] = int(_number(text))
                elif name:
                    log.least(name, _number(text))


def _read_pool(log: Log, numbers: list[float]) -> None:
    """Ranks and a draft model have pools of as many tokens, of which the model's is the largest."""
    tokens, size = int(numbers[0]), sum(numbers[1:])
    log.pools[tokens] = max(size, log.pools.get(tokens, 0.0))
    log.settings["sizes_added"] = len(numbers) - 1


def _read_settings(log: Log, line: str) -> None:
    for words, pattern, name in _OTHERS:
        if words in line and (match := pattern.search(line)):
            log.settings[name] = _number(match[1])
    if ("=" in line or "': " in line) and any(name in line for name in _SETTINGS):
        for key, text in _SETTING.findall(line):
            _set(log, _SETTINGS[key], text)
    if "--" in line:
        for key, text in _OPTION.findall(line):
            _set(log, _SHORT.get(key) or _SETTINGS[key.replace("-", "_")], text)
    if "vllm serve" in line and (match := _SERVE.search(line)) and not match[1].startswith("-"):
        _set(log, "model", match[1])


_READERS: dict[str, Callable[[str], Setting]] = {
    **dict.fromkeys(("context", "tp", "pp", "dcp", "pcp", "block_size", "max_num_seqs"), int),
    **{"max_num_batched_tokens": int, "speculated": int},
    "utilisation": float,
}


def _set(log: Log, name: str, text: str) -> None:
    """A setting that says something: None and what is no number where one is meant do not."""
    text = text.rstrip(".")  # of a sentence
    if text in ("None", "null") or len(text) > 200:
        return
    try:
        log.settings[name] = _READERS.get(name, str)(text[:40] if name in _READERS else text)
    except ValueError:
        return


def _finish(log: Log) -> None:
    """SGLang's layers with a window have a pool of their own; vLLM says at the end again what the
    cache got."""
    if "in_use_gib" in log.figures:
        log.figures.setdefault("available_gib", log.figures.pop("in_use_gib"))
    if log.pools:
        log.figures["kv_tokens"] = float(max(log.pools))
        log.figures["available_gib"] = sum(log.pools.values())
        log.settings["sizes_added"] = int(log.settings["sizes_added"]) * len(log.pools)
