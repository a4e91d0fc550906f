"""SGLang's start-up log: sglang/srt/model_executor of the versions whose rules are known."""

import re

from .start_log import NUMBER, Log, LogLine, StartLog, number

_ALLOCATED = "KV Cache is allocated"
# A pool of keys and values apart, or of latents.
_POOL = re.compile(
    rf"{_ALLOCATED}.{{0,80}}#tokens: {NUMBER}, (?:K size: {NUMBER} GB, V size:"
    rf" {NUMBER} GB|KV size: {NUMBER} GB)"
)


def _read_line(log: Log, line: str) -> None:
    """Ranks and a draft model have pools of as many tokens, of which the model's is the largest."""
    if _ALLOCATED in line and (match := _POOL.search(line)):
        tokens, *sizes = [number(text) for text in match.groups() if text]
        log.pools[int(tokens)] = max(sum(sizes), log.pools.get(int(tokens), 0.0))
        log.settings["sizes_added"] = len(sizes)


def _finish(log: Log) -> None:
    """Layers with a window have a pool of their own."""
    if log.pools:
        log.figures["kv_tokens"] = float(max(log.pools))
        log.figures["available_gib"] = sum(log.pools.values())
        log.settings["sizes_added"] = int(log.settings["sizes_added"]) * len(log.pools)


LOG = StartLog(
    engine="sglang",
    looked_for=f"`{_ALLOCATED}`, `max_total_num_tokens`, `Load weight end` (SGLang)",
    signs=("ServerArgs(", "sglang", _ALLOCATED),
    starts=("server_args=ServerArgs",),
    figures=(
        LogLine(
            "Load weight end", rf"Load weight end.{{0,300}}mem usage={NUMBER} GB", "weights_gib"
        ),
        LogLine("max_total_num_tokens", rf"max_total_num_tokens={NUMBER}", "kv_tokens"),
    ),
    versions=(
        LogLine("SGLang", r"SGLang[^\n]{0,30}? version:? ?v?([0-9][^\s,]{0,40})"),
        LogLine("sglang", r"sglang[=-]{1,2}([0-9]+\.[^\s,]{1,30})"),
    ),
    settings={
        **{"model_path": "model", "context_length": "context", "context_len": "context"},
        **{"tp_size": "tp", "pp_size": "pp", "page_size": "block_size"},
        **{"kv_cache_dtype": "kv_dtype", "dtype": "dtype", "quantization": "quantization"},
        **{"mem_fraction_static": "utilisation"},
    },
    read_line=_read_line,
    finish=_finish,
)
