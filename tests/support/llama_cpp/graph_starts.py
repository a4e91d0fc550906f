"""The models and starts of which llama.cpp is asked for graphs: those of the record with one size
changed in each, so that what a tensor's bytes are a product of shows."""

from collections.abc import Iterator
from typing import Any

from graph_record import AGAIN, ALIKE, MODES, UNFUSED
from headcount.plan.engines.llama_cpp.compute import ALSO_ALONE

Json = dict[str, Any]
_RUN: Json = {"ctx": 3840, "seqs": 3, "ubatch": 420, "outputs": 11}
_OTHER: Json = {"ctx": 5376, "seqs": 3, "ubatch": 702, "outputs": 13}
_RUNS: dict[str, Json] = {
    "base": _RUN,
    "tokens": {**_RUN, "ubatch": 396},
    "sequences": {**_RUN, "seqs": 2, "ctx": 2560},
    "cells": {**_RUN, "ctx": 5376},
    "outputs": {**_RUN, "outputs": 13},
    "one stream": {**_RUN, **ALIKE["one stream"]},
    "alone": {**_RUN, "seqs": 1, "ubatch": 500, "ctx": 1536},
}
_CELLS, _BESIDE = 1280, 512  # of a sequence in the shortest of them; what a window has beside it
_FEW = {"flash": 7, "scores": 4}  # of the starts, in these modes; of others three
# Whose last operation of a layer has no name by which llama.cpp ties it to the layer's device
# (llama_context::graph_get_cb): where the next layer lies elsewhere, it is not fused.
_LEFT_UNTIED = frozenset({"glm5-next"})
_HEADS = (
    {"embedding_length": 576, "attention.key_length": 64, "attention.value_length": 64},
    {"embedding_length": 640, "rope.dimension_count": 80},
    {"attention.head_count": 16, "attention.key_length": 64, "attention.value_length": 64},
    {"attention.head_count": 4, "rope.dimension_count": 128},
    {"attention.key_length": 96, "attention.value_length": 96, "rope.dimension_count": 96},
    {"attention.key_length": 96, "attention.value_length": 96},
    {"attention.key_length": 96, "attention.value_length": 80, "rope.dimension_count": 96},
)
_LATENTS = (
    {"attention.kv_lora_rank": 192, "attention.key_length": 256, "attention.value_length": 192},
    {"rope.dimension_count": 32, "attention.key_length": 160, "attention.key_length_mla": 128},
    {"attention.head_count": 16},
    {"embedding_length": 640},
)
_OTHERS = (
    {"embedding_length": 640},
    {"attention.head_count": 16},
    {"attention.key_length": 96, "attention.value_length": 96, "rope.dimension_count": 96},
)
_STATES = (
    {"ssm.inner_size": 2048, "ssm.time_step_rank": 16},
    {"ssm.state_size": 256},
    {"ssm.state_size": 64, "ssm.inner_size": 256},
    {"ssm.inner_size": 1024, "ssm.time_step_rank": 8},
    {"ssm.group_count": 4},
)
_IN_WINDOWS = {"attention.key_length_swa": 128, "attention.value_length_swa": 128}
# Sizes that may change alone; any other whole number is doubled, but what says how a graph is made.
_ALONE: dict[str, tuple[int, ...]] = {
    "attention.head_count_kv": (4, 1),
    "feed_forward_length": (800,),
    "expert_feed_forward_length": (832,),
    "expert_count": (6,),
    "expert_used_count": (3,),
    "expert_shared_count": (2,),
    "attention.indexer.top_k": (512, 768),
    "embedding_length_per_layer_input": (384,),
}
_KEPT = (
    *("context_length", "rope.dimension", "embedding_length", "attention.head_count", "block_"),
    *(
        "epsilon",
        "freq_base",
        "sliding_window",
        "gating_func",
        "scale",
        "clamp",
        "swiglu",
        "tokens",
    ),
    *("alpha", "beta", "eps", "weights_norm", "residual", "logit", "vocab_size", "interval"),
    *("leading", "interleave", "layers_per", "cycles", "ratios", "iterations", "buckets", "hash"),
    *("magnitude", "pattern", "types", "_layers", "token_type", "select_tail"),
)


def starts(architecture: str, keys: Json, window: int | None) -> Iterator[tuple[str, Json, Json]]:
    """Name, keys and settings of each; the contexts are longer than a `window` of the layers."""
    times = -(-((window or 0) + _BESIDE) // _CELLS)
    # T5 adds to all scores at once what depends on how far tokens are apart: of one stream alone
    shared = {"unified": True} if "attention.relative_buckets_count" in keys else {}
    modes = {**MODES, **UNFUSED} if architecture in _LEFT_UNTIED else MODES
    for mode, settings in modes.items():
        extra = {**settings, **shared}
        for name in dict.fromkeys((*list(_RUNS)[: _FEW.get(mode, 3)], *ALIKE)):
            yield f"{mode} {name}", keys, {**_longer(_RUNS[name], times), **extra}
        if architecture in ALSO_ALONE:
            yield f"{mode} one of three", keys, {**_longer(_RUN, times), **extra, "reserved": 1}
        for name, own in _changed(keys, mode):
            yield f"{mode} {name}", own, {**_longer(_RUN, times), **extra}
        wide = next(one for one in _joint(keys) if "embedding_length" in one)
        other = {**_longer(_OTHER, times), **extra}
        for name, own in _of_other_layers(keys, mode):
            yield f"{mode} {name}", own, {**_longer(_RUN, times), **extra}
            yield f"{mode} {name}{AGAIN}", {**own, **wide}, other
        for name, slots in ALIKE.items():
            yield f"{mode} {name}{AGAIN}", {**keys, **wide}, {**other, **slots}


def _longer(run: Json, times: int) -> Json:
    return {**run, "ctx": run["ctx"] * times}


def _changed(keys: Json, mode: str) -> Iterator[tuple[str, Json]]:
    if mode == "flash":
        more = keys["vocab_size"] + 100
        yield "vocabulary", {**keys, "vocab_size": more, "tokenizer.ggml.tokens": more}
        if "attention.relative_buckets_count" in keys:
            yield "context", {**keys, "context_length": keys["context_length"] // 2}
    for key, value in keys.items():
        if key in _ALONE and (mode == "flash" or key == "attention.head_count_kv"):
            for one in _ALONE[key]:
                yield f"{key} {one}", {**keys, key: _in_place_of(value, one)}
        elif mode == "flash" and type(value) is int and value and _may_double(key):
            yield f"{key} twice", {**keys, key: 2 * value}
    joint = _joint(keys)
    few = {"flash": joint, "scores": joint[:3]}.get(mode, joint[1:2])
    for together in few:
        yield f"{together}", {**keys, **together}


def _in_place_of(value: Any, one: int) -> Any:
    return [one if each else 0 for each in value] if isinstance(value, list) else one


def _may_double(key: str) -> bool:
    return key not in _ALONE and not any(word in key for word in _KEPT)


def _joint(keys: Json) -> tuple[Json, ...]:
    if "attention.key_length" not in keys:
        found: tuple[Json, ...] = _HEADS
    else:
        found = _LATENTS if "attention.kv_lora_rank" in keys else _OTHERS
    if "attention.key_length_swa" in keys:
        found = (*found, _IN_WINDOWS)
    return (*found, *(_STATES if "ssm.state_size" in keys else ()))


def _of_other_layers(keys: Json, mode: str) -> Iterator[tuple[str, Json]]:
    """Models of more and of fewer layers than four, with a dense first layer, without windows, and
    with attention and MLP side by side: what is in a graph then."""
    if keys["block_count"] == 4:
        for count in (8, 3) if mode != "flash" else (8, 3, 2):
            yield f"layers={count}", _deep(keys, count)
    if keys.get("expert_count") and "leading_dense_block_count" not in keys:
        dense = {**keys, "leading_dense_block_count": 1, "feed_forward_length": 1344}
        yield "layers=4 first dense", dense
    if "attention.sliding_window" in keys:
        plain = {k: v for k, v in keys.items() if "sliding_window" not in k}
        yield "layers=4 without windows", plain
        yield "layers=3 without windows", _deep(plain, 3)
    if "full_attention_interval" in keys:
        yield "layers=8 every fourth", {**_deep(keys, 8), "full_attention_interval": 4}
    for name, order in (("turned", (1, 0, 1, 0)), ("in pairs", (1, 1, 0, 0))):
        if turned := _reordered(keys, order):
            yield f"layers=4 {name}", {**keys, **turned}
            yield f"layers=8 {name}", _deep({**keys, **turned}, 8)
    if keys.get("use_parallel_residual") is False:
        yield "layers=4 side by side", {**keys, "use_parallel_residual": True}


def _reordered(keys: Json, order: tuple[int, ...]) -> Json:
    """Values of single layers in another order of the first two."""
    return {
        key: [value[i] for i in order]
        for key, value in keys.items()
        if isinstance(value, list) and len(value) == 4 and value[0] != value[1]
    }


def _deep(keys: Json, count: int) -> Json:
    """With so many layers, whose own values go on as those of four."""
    layers = {
        key: (2 * value)[:count]
        for key, value in keys.items()
        if isinstance(value, list) and len(value) == 4 and "sections" not in key
    }
    return {**keys, **layers, "block_count": count}
