"""SGLang's start-up log: sglang/srt/model_executor of the versions whose rules are known."""

import re

from ..request import PlanRequest
from .added.sglang import DRAFT_FIRST_SINCE
from .start_log import (
    NUMBER,
    SERVED_AS,
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
_AVAILABLE, _USED = (re.compile(rf"{words}={NUMBER} GB") for words in ("avail mem", "mem usage"))
_STATES = "Mamba Cache is allocated"
_STATE = re.compile(rf"size: {NUMBER} ?GB")
# What begins the lines of a rank: [2026-01-04 06:41:25 DP0 TP0 EP0].
_OF_RANK = re.compile(r"\[[0-9 :.-]{0,40}([A-Z][A-Z0-9 ]{0,40})\]")
_LAST_WITH_DRAFT_AFTER = "0.5.13"  # whose pools are there when what drafts is loaded
# Figures that are kept for each rank until the log ends.
_LOADS, _POOLS, _LEFT = "loads of ", "pools of ", "left of "


def _rank(line: str) -> str:
    match = _OF_RANK.search(line[:80])
    return match[1] if match else ""


def _begins_to_load(log: Log, line: str) -> None:
    """What is free before the first of a rank's models; the second is what drafts."""
    if _LOADS + _rank(line) not in log.figures and (match := _AVAILABLE.search(line)):
        log.least("free", number(match[1]))


def _loaded(log: Log, line: str) -> None:
    """Pools are sized by what is left then: before or after what drafts is loaded, by version."""
    rank, used, left = _rank(line), _USED.search(line), _AVAILABLE.search(line)
    is_draft = _LOADS + rank in log.figures
    log.figures[_LOADS + rank] = 1.0
    if used:
        log.least("draft_gib" if is_draft else "weights_gib", number(used[1]))
    if left and _POOLS + rank not in log.figures:
        log.figures[_LEFT + rank] = number(left[1])
    elif is_draft:
        log.settings["version_at_most"] = _LAST_WITH_DRAFT_AFTER


def _pool(log: Log, line: str) -> None:
    """Ranks have pools of as many tokens; those of what drafts come after the model's own."""
    match, pools = _POOL.search(line), _POOLS + _rank(line)
    if match is None:
        return
    tokens, *sizes = [number(text) for text in match.groups() if text]
    if log.figures.get(pools, 0.0) > 1:
        log.figures["draft_pool"] = max(sum(sizes), log.figures.get("draft_pool", 0.0))
        return
    log.figures[pools] = 1.0
    log.pools[int(tokens)] = max(sum(sizes), log.pools.get(int(tokens), 0.0))
    log.settings["sizes_added"] = len(sizes)


def _pools_end(log: Log, line: str) -> None:
    """The model's own are there."""
    if (pools := _POOLS + _rank(line)) in log.figures:
        log.figures[pools] = 2.0


def _states(log: Log, line: str) -> None:
    if found := [number(size) for size in _STATE.findall(line)]:
        log.figures["states_gib"] = max(sum(found), log.figures.get("states_gib", 0.0))


def _finish(log: Log) -> None:
    """Layers with a window have a pool of their own. What a pool got is that of keys and values:
    states lie beside it."""
    if left := [gib for name, gib in log.figures.items() if name.startswith(_LEFT)]:
        log.figures["left"] = min(left)
    for name in [known for known in log.figures if known.startswith((_LOADS, _POOLS, _LEFT))]:
        del log.figures[name]
    if log.pools:
        log.figures["kv_tokens"] = float(max(log.pools))
        log.figures["available_gib"] = sum(log.pools.values())
        log.settings["sizes_added"] = int(log.settings["sizes_added"]) * len(log.pools)
        log.settings["pool_only"] = 1


def _own_account(log: Log, request: PlanRequest) -> OwnAccount | None:
    """left after loading - free before it x (1 - mem_fraction_static), of which states, and by
    version the cache of what drafts, have their part."""
    found, share = log.figures, request.utilisation
    if share is None or not {"left", "weights_gib"} <= found.keys():
        return None
    if found.get("kv_tokens", 0) == log.settings.get("max_total_tokens"):  # whatever was left
        return None
    free = found.get("free", found["left"] + found["weights_gib"])
    beside = {"states": found.get("states_gib")}
    if request.version is not None and request.version.at_least(*DRAFT_FIRST_SINCE):
        beside["draft's cache"] = found.get("draft_pool")
    less = {name: gib for name, gib in beside.items() if gib}
    words = "".join(f" - {gib:g} {name}" for name, gib in less.items())
    return OwnAccount(
        gib=found["left"] - free * (1 - share) - sum(less.values()),
        addends=3 + len(less),
        words=f"{found['left']:g} left - {free:g} free before x (1 - {share:g}){words} GiB",
    )


LOG = StartLog(
    engine="sglang",
    looked_for=f"`{_ALLOCATED}`, `max_total_num_tokens`, `Load weight end` (SGLang)",
    signs=(
        *("ServerArgs(", "sglang", _ALLOCATED, "max_total_num_tokens=", "Load weight end"),
        *("mem-fraction-static", "mem_fraction_static="),
    ),
    starts=("server_args=ServerArgs",),
    figures=(
        LogLine("max_total_num_tokens", rf"max_total_num_tokens={NUMBER}", "kv_tokens"),
        LogLine("graph end", rf"[Cc]apture .{{0,40}}end\..{{0,60}}mem usage={NUMBER} GB", "graphs"),
    ),
    versions=(
        LogLine("sglang==", r"sglang==([0-9]+\.[^\s,]{1,30})"),
        LogLine("sglang:", r"sglang: ([0-9]+\.[^\s,]{1,30})"),
        LogLine("SGLang", r"SGLang[^\n]{0,30}? [Vv]ersion:? ?v?([0-9][^\s,]{0,40})"),
        LogLine("sgl-dev:", r"sgl-dev:v?([0-9]+\.[0-9]+\.[^\s,'\"]{1,40})"),
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
            LogLine(
                "no GPU memory for the KV cache",
                rf"leave no GPU memory for the KV cache(?: under --mem-fraction-static={NUMBER})?",
                "utilisation",
            ),
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
        **{"mem_fraction_static": "utilisation", "dp_size": "dp", "ep_size": "ep_size"},
        **{"enable_dp_attention": "enable_dp_attention", "max_loras_per_batch": "max_loras"},
        **{"ep_num_redundant_experts": "num_redundant_experts"},
        **{"max_total_tokens": "max_total_tokens", "device": "platform"},
        "speculative_algorithm": "speculative_algorithm",
        "speculative_draft_model_path": "speculative_model",
        "speculative_num_draft_tokens": "speculated",
        **{"speculative_num_steps": "steps", "speculative_eagle_topk": "topk"},
    },
    phases=(
        *(("Capture cuda graph failed", "graphs"), ("Capture CUDA graph failed", "graphs")),
        *(("init_device_graphs", "graphs"), ("in load_model", "weights"), ("in forward", "step")),
    ),
    told=("ServerArgs(", "launch_server"),
    others=(
        *(("Load weight begin", _begins_to_load), ("Load weight end", _loaded)),
        *((_ALLOCATED, _pool), ("Memory pool end", _pools_end), (_STATES, _states)),
    ),
    finish=_finish,
    own_account=_own_account,
    terms=(("weights_gib", "weights"),),
)
