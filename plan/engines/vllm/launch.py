"""The command that starts vLLM as planned: vllm/engine/arg_utils.py of each version.

What a version's parser does not have is not said: then no command is given, with the reason.
"""

import json
import shlex
from collections.abc import Iterator
from typing import NamedTuple

from ...planned_model import PlannedModel
from ...request import PlanRequest, Workload
from ...stored import full_name, unquantised
from ..cache_names import AUTO
from ..launch import Launch, Served, beyond_maximum, gguf_file, option, served, wants_gguf
from ..version import Version
from .cache_kernels import must_be_named
from .cache_types import CACHES

_Release = tuple[int, ...]
# Options that not every version has -> the first of those read that has them.
_SINCE: dict[str, _Release] = {
    **{"--kv-cache-memory-bytes": (0, 10, 2), "--decode-context-parallel-size": (0, 10, 2)},
    **{"--mamba-cache-mode": (0, 15), "--disable-hybrid-kv-cache-manager": (0, 9, 1)},
    **{"VLLM_USE_V2_MODEL_RUNNER": (0, 12), "--lora-target-modules": (0, 20)},
    **{"--enable-eplb": (0, 9, 2)},
}


class _Made(NamedTuple):
    """What --quantization `method` makes of 16 bit weights, all linear layers and experts, while it
    loads them: `since` a version and `until` another. Before `by_layer` all of them are on the
    device at 16 bit first; since then each layer is quantised when its last weight is there."""

    method: str
    since: _Release = (0,)
    until: _Release | None = None
    by_layer: _Release = (0,)


# (experts_int8, int8_per_channel_weight_only and nvfp4_per_token only make experts.) Layers of fp8
# lie on the meta device until then (uses_meta_device of layers/quantization/fp8.py); 0.13 to 0.15
# quantise each as soon as they can, but room for all was taken before.
_ON_LOADING = {
    "float8_e4m3fn": _Made("fp8", by_layer=(0, 16)),
    "nf4": _Made("bitsandbytes", until=(0, 28)),
    "mxfp8": _Made("mxfp8", since=(0, 19)),
    "mxfp4": _Made("mxfp4", since=(0, 28)),
}
# Formats -> the versions that load files of them: from which and up to which.
_LOADS: dict[str, tuple[_Release, _Release | None]] = {
    **{"nf4": ((0,), (0, 28)), "mxfp4": ((0, 10, 1), None), "mxfp8": ((0, 16), None)},
    "float8_e5m2": ((99,), None),
}
_NO_GGUF = (0, 24)  # the first version without a reader of GGUF files


def vllm_launch(model: PlannedModel, work: Workload, kv_tokens: int) -> Launch:
    """`vllm serve`, or `vllm.LLM` where that was planned."""
    found, version = _served(model, work), f"vllm {work.version.text}".strip()
    words = [*found.words, *_options(model, work)]
    missing = tuple(_missing([*_variables(model, work), *words], work.version, version))
    if found.name is None or missing:
        return Launch(command=None, notes=(*found.notes, *missing), refusals=found.refusals)
    notes = (*found.notes, *_notes(model, work))
    command = _offline if work.request.usage == "offline" else _server
    return Launch(
        command=" ".join([*_variables(model, work), command(found.name, words)]), notes=notes
    )


def _server(name: str, words: list[str]) -> str:
    return " ".join([f"vllm serve {name}", *words])


def _offline(name: str, words: list[str]) -> str:
    """The same options as arguments of the class, by their names."""
    arguments = [_quoted(shlex.split(name)[0])]
    for word in shlex.split(" ".join(words)):
        if word.startswith("--"):
            key = word[2:].replace("-", "_")
            no = key.startswith("no_")
            arguments.append(f"{key.removeprefix('no_')}={not no}")
        else:
            arguments[-1] = f"{arguments[-1].removesuffix('=True')}={_quoted(word)}"
    listed = ", ".join(arguments)
    return f"python -c {shlex.quote(f'import vllm; vllm.LLM({listed})')}"


def _quoted(text: str) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return json.dumps(text)


def _served(model: PlannedModel, work: Workload) -> Served:
    dtype, version = work.request.dtype, work.version
    engine = f"vllm {version.text}".strip()
    if wants_gguf(model, dtype):
        if version.at_least(*_NO_GGUF):
            return Served(name=None, refusals=(f"{engine} reads no GGUF files",))
        base = f"--tokenizer {shlex.quote('<the model that the GGUF was made of>')}"
        return gguf_file(model, full_name(dtype) if dtype else None, base)
    makes = {name: f"--dtype {name}" for name in ("float16", "bfloat16", "float32")}
    for name, made in _ON_LOADING.items():
        if _is_within(version, made.since, made.until):
            makes[name] = f"--quantization {made.method}"
    unknown = [name for name, (first, end) in _LOADS.items() if not _is_within(version, first, end)]
    return served(model, dtype, engine=engine, on_loading=makes, unknown=unknown)


def made_while_loading(model: PlannedModel, work: Workload) -> str | None:
    """The full name of the format that the version makes of 16 bit weights; None where it makes
    none, or the files are quantised."""
    name = full_name(work.request.dtype) if work.request.dtype else ""
    made = _ON_LOADING.get(name)
    if made is None or not _is_within(work.version, made.since, made.until):
        return None
    return None if unquantised(model) is None else name


def loads_whole(model: PlannedModel, work: Workload) -> bool:
    """Whether 16 bit weights that are quantised while they load are all on the device first."""
    made = made_while_loading(model, work)
    return made is not None and not work.version.at_least(*_ON_LOADING[made].by_layer)


def _is_within(version: Version, first: _Release, end: _Release | None) -> bool:
    return version.at_least(*first) and not (end and version.at_least(*end))


def _variables(model: PlannedModel, work: Workload) -> Iterator[str]:
    request = work.request
    if beyond_maximum(model, work) is not None:
        yield "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
    if request.model_runner is not None:
        yield f"VLLM_USE_V2_MODEL_RUNNER={int(request.model_runner == 'v2')}"
    if request.sampler is not None:
        yield f"VLLM_USE_FLASHINFER_SAMPLER={int(request.sampler == 'flashinfer')}"
    if request.pp_layer_partition is not None:
        yield f"VLLM_PP_LAYER_PARTITION={','.join(map(str, request.pp_layer_partition))}"


def _options(model: PlannedModel, work: Workload) -> Iterator[str]:
    request = work.request
    yield f"--max-model-len {work.context}"
    yield from option("--tensor-parallel-size", request.tp, 1)
    yield from option("--pipeline-parallel-size", request.pp, 1)
    yield from _experts(work)
    yield from option("--decode-context-parallel-size", request.context_ranks, 1)
    if request.kv_memory is not None:
        yield f"--kv-cache-memory-bytes {request.kv_memory}"
    elif request.utilisation is not None:
        yield f"--gpu-memory-utilization {request.utilisation:g}"
    yield from _cache(model, work)
    yield from option("--block-size", request.block_size)
    yield from option("--max-num-seqs", request.max_num_seqs)
    yield from option("--max-num-batched-tokens", request.max_num_batched_tokens)
    if request.enforce_eager:
        yield "--enforce-eager"
    if request.disable_hybrid_kv_cache_manager:
        yield "--disable-hybrid-kv-cache-manager"
    yield from _prefixes(work)
    yield from _added(request)


def _experts(work: Workload) -> Iterator[str]:
    """Ranks of data parallel, and how experts are spread over them. Redundant ones are an option
    of their own until 0.10 (EPLBConfig of vllm/config/parallel.py)."""
    request = work.request
    yield from option("--data-parallel-size", request.dp, 1)
    if request.enable_expert_parallel:
        yield "--enable-expert-parallel"
    if request.num_redundant_experts:
        yield "--enable-eplb"
        if not work.version.at_least(0, 11):
            yield f"--num-redundant-experts {request.num_redundant_experts}"
            return
        settings = json.dumps({"num_redundant_experts": request.num_redundant_experts})
        yield f"--eplb-config {shlex.quote(settings)}"


def _added(request: PlanRequest) -> Iterator[str]:
    """Adapters, weights in the host's memory, images, and what drafts."""
    if request.enable_lora:
        yield "--enable-lora"
        yield from option("--max-loras", request.max_loras)
        yield from option("--max-lora-rank", request.max_lora_rank)
    if request.lora_dtype is not None:
        yield f"--lora-dtype {request.lora_dtype}"
    if request.lora_target_modules:
        names = map(shlex.quote, request.lora_target_modules)
        yield f"--lora-target-modules {' '.join(names)}"
    if request.fully_sharded_loras:
        yield "--fully-sharded-loras"
    if request.cpu_offload_gb is not None:
        yield f"--cpu-offload-gb {request.cpu_offload_gb:g}"
    if request.limit_mm_per_prompt is not None:
        yield f"--limit-mm-per-prompt {shlex.quote(request.limit_mm_per_prompt.given)}"
    if request.mm_processor_kwargs is not None:
        yield f"--mm-processor-kwargs {shlex.quote(request.mm_processor_kwargs.given)}"
    if request.speculative_config is not None:
        yield f"--speculative-config {shlex.quote(request.speculative_config.config)}"


def _prefixes(work: Workload) -> Iterator[str]:
    """Of cached prefixes, and of the state that models with recurrent layers keep for them."""
    mode, caches = work.request.mamba_cache_mode, work.request.caches_prefixes
    if mode is not None:
        caches = mode != "none"
    if caches is not None:
        yield f"--{'' if caches else 'no-'}enable-prefix-caching"
    if mode is not None:
        yield f"--mamba-cache-mode {mode}"


def _cache(model: PlannedModel, work: Workload) -> Iterator[str]:
    """Nothing where the type is what the version takes anyway."""
    if (cache := CACHES.own(work.request.kv_dtype, work.version, work.compute_dtype)) != AUTO:
        yield f"--kv-cache-dtype {cache}"
    elif must_be_named(model.spec, work.version):
        yield "--kv-cache-dtype fp8"


def _missing(words: list[str], version: Version, engine: str) -> Iterator[str]:
    """What the version's parser does not know."""
    for word in shlex.split(" ".join(words)):
        name = word.partition("=")[0]
        if name in _SINCE and not version.at_least(*_SINCE[name]):
            since = ".".join(str(n) for n in _SINCE[name])
            yield f"{engine} has no {name} (since {since}), which this plan needs."


def _notes(model: PlannedModel, work: Workload) -> Iterator[str]:
    most = beyond_maximum(model, work)
    if most is not None:
        yield (
            f"what the model writes beyond its {most:,} tokens is nonsense, without a scaling of"
            " its rotary embeddings that its card names (--hf-overrides): vLLM refuses such a"
            " context unless VLLM_ALLOW_LONG_MAX_MODEL_LEN is set."
        )
