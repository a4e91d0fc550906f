"""SGLang's start-up log: sglang/srt/model_executor of the versions whose rules are known."""

import re

from ..request import PlanRequest
from .start_log import (
    NUMBER,
    SERVED_AS,
    SIZE,
    WORD,
    FailureLine,
    Log,
    LogLine,
    OwnAccount,
    StartLog,
    number,
)

_ALLOCATED = "KV Cache is allocated"
# A pool of keys and values apart, or of latents.
_POOL = re.compile(
    rf"{_ALLOCATED}.{{0,80}}#tokens: {NUMBER}, (?:K size: {NUMBER} GB, V size:"
    rf" {NUMBER} GB|KV size: {NUMBER} GB)"
)


def _pool(log: Log, line: str) -> None:
    """Ranks and a draft model have pools of as many tokens, of which the model's is the largest."""
    if match := _POOL.search(line):
        tokens, *sizes = [number(text) for text in match.groups() if text]
        log.pools[int(tokens)] = max(sum(sizes), log.pools.get(int(tokens), 0.0))
        log.settings["sizes_added"] = len(sizes)


def _finish(log: Log) -> None:
    """Layers with a window have a pool of their own. What a pool got is that of keys and values:
    states lie beside it."""
    if log.pools:
        log.figures["kv_tokens"] = float(max(log.pools))
        log.figures["available_gib"] = sum(log.pools.values())
        log.settings["sizes_added"] = int(log.settings["sizes_added"]) * len(log.pools)
        log.settings["pool_only"] = 1


def _own_account(log: Log, request: PlanRequest) -> OwnAccount | None:
    """left after loading - free before it x (1 - mem_fraction_static)."""
    found, share = log.figures, request.utilisation
    if share is None or not {"left", "weights_gib"} <= found.keys() or "states_gib" in found:
        return None
    free = found.get("free", found["left"] + found["weights_gib"])
    gib = found["left"] - free * (1 - share)
    words = f"{found['left']:g} left - {free:g} free before x (1 - {share:g}) GiB"
    return OwnAccount(gib=gib, addends=3, words=words)


LOG = StartLog(
    engine="sglang",
    looked_for=f"`{_ALLOCATED}`, `max_total_num_tokens`, `Load weight end` (SGLang)",
    signs=(
        *("ServerArgs(", "sglang", _ALLOCATED, "max_total_num_tokens=", "Load weight end"),
        *("mem-fraction-static", "mem_fraction_static="),
    ),
    starts=("server_args=ServerArgs",),
    figures=(
        LogLine(
            "Load weight end", rf"Load weight end.{{0,300}}mem usage={NUMBER} GB", "weights_gib"
        ),
        LogLine("Load weight begin", rf"Load weight begin.{{0,40}}avail mem={NUMBER} GB", "free"),
        LogLine("Load weight end", rf"Load weight end.{{0,300}}avail mem={NUMBER} GB", "left"),
        LogLine("max_total_num_tokens", rf"max_total_num_tokens={NUMBER}", "kv_tokens"),
        LogLine("graph end", rf"[Cc]apture .{{0,40}}end\..{{0,60}}mem usage={NUMBER} GB", "graphs"),
        LogLine("ssm_state size", rf"ssm_state size: {SIZE}", "states_gib"),
    ),
    versions=(
        LogLine("sglang==", r"sglang==([0-9]+\.[^\s,]{1,30})"),
        LogLine("sglang:", r"sglang: ([0-9]+\.[^\s,]{1,30})"),
        LogLine("SGLang", r"SGLang[^\n]{0,30}? [Vv]ersion:? ?v?([0-9][^\s,]{0,40})"),
        LogLine("sglang", r"sglang(?:/sglang)?[=:@ -]{1,3}v?([0-9]+\.[0-9]+\.[^\s,'\")]{1,30})"),
    ),
    names=(
        SERVED_AS,
        LogLine("for /", rf"mismatch for {WORD}"),
    ),
    failures=(
        FailureLine(
            "cache",
            LogLine(
                "Not enough memory. Please try",
                rf"Not enough memory\.(?:.{{0,120}}mem_fraction_static={NUMBER})?",
                "utilisation",
            ),
        ),
        FailureLine(
            "cache",
            LogLine("the profiled value -", rf"larger than the profiled value {NUMBER}", "tokens"),
        ),
        FailureLine(
            "cache",
            LogLine("Not enough GPU memory for hybrid", "Not enough GPU memory for hybrid state"),
        ),
        FailureLine(
            "unbalanced",
            LogLine(
                "memory capacity is unbalanced",
                rf"is unbalanced(?:.{{0,120}}?memory={NUMBER}.{{0,40}}?memory={NUMBER})?",
                *("least", "own"),
            ),
        ),
    ),
    context_option="--context-length",
    serves=("The server is fired up",),
    settings={
        **{"model_path": "model", "context_length": "context", "context_len": "context"},
        **{"tp_size": "tp", "pp_size": "pp", "page_size": "block_size"},
        **{"kv_cache_dtype": "kv_dtype", "dtype": "dtype", "quantization": "quantization"},
        **{"mem_fraction_static": "utilisation"},
    },
    phases=(
        *(("Capture cuda graph failed", "graphs"), ("Capture CUDA graph failed", "graphs")),
        *(("init_device_graphs", "graphs"), ("in load_model", "weights"), ("in forward", "step")),
    ),
    told=("ServerArgs(", "launch_server"),
    others=((_ALLOCATED, _pool),),
    finish=_finish,
    own_account=_own_account,
    terms=(("weights_gib", "weights"),),
)
