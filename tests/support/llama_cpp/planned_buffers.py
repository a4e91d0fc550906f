"""What `plan --engine llama.cpp` says of the record's models, by the names of its answers."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any

from headcount.arch.gguf.spec import gguf_spec
from headcount.model.spec import ModelSpec
from headcount.plan.devices import parse_device
from headcount.plan.engines.llama_cpp.llama_cpp import ENGINE
from headcount.plan.plan import Plan, plan_model
from headcount.plan.planned_model import PlannedModel
from headcount.plan.request import FlashAttention, PlanRequest
from headcount.sources.ggml_types import GGML_TYPES
from headcount.sources.safetensors import TensorInfo
from llama_record import Json, metadata, ungrouped

MIB = 2**20
BLOCKS = {name: (elements, nbytes) for name, elements, nbytes in GGML_TYPES.values()}
BEFORE_LIMITED_OUTPUTS = ENGINE.releases.parse("b9453")


def model_of(line: Json) -> PlannedModel:
    """As the file that llama.cpp was given, which need not be written for it."""
    tensors = {name: _tensor(name, kind, shape) for name, kind, shape in ungrouped(line["tensors"])}
    return PlannedModel(
        model_id=f"{line['name']}.gguf",
        spec=spec_of(metadata(line), line["name"]),
        weights_bytes=sum(tensor.nbytes for tensor in tensors.values()),
        tensors=tensors,
    )


def spec_of(keys: Mapping[str, Any], name: str) -> ModelSpec:
    """Of the key-values of a file, as the worker is given them."""
    found = {key: tuple(one) if isinstance(one, list) else one for key, one in keys.items()}
    found["tokenizer.ggml.tokens"] = tuple(range(keys["tokenizer.ggml.tokens"]))
    return gguf_spec(found, name)


def window_of(keys: Mapping[str, Any], name: str) -> int | None:
    """Of the layers that have one."""
    mixers = (mixer for layer in spec_of(keys, name).layers for mixer in layer.mixers)
    return next((mixer.window for mixer in mixers if mixer.window is not None), None)


def _tensor(name: str, kind: str, shape: tuple[int, ...]) -> TensorInfo:
    elements, nbytes = BLOCKS[kind]
    size = prod(shape) // elements * nbytes
    return TensorInfo(name=name, dtype=kind, shape=shape, file="", offsets=(0, size))


def planned(model: PlannedModel, run: Mapping[str, Any]) -> dict[str, float]:
    """MiB of each buffer, and the bars of the compute buffers."""
    plan = plan_model(model, request_of(run))
    if "layers" in run:
        found = {**_host(plan), **_device(plan)}
    else:
        found = _alone(plan, plan_model(model, replace(request_of(run), gpu_layers=0)))
    return {name: size / MIB for name, size in {**found, **_bars(plan)}.items()}


def _bars(plan: Plan) -> dict[str, int]:
    terms = {"device": plan.taken, "host": plan.host_terms}
    return {
        f"bar of compute {place}": term.error_bytes
        for place, found in terms.items()
        for term in found
        if term.key == "activations"
    }


def _alone(plan: Plan, beside: Plan) -> dict[str, int]:
    """On a machine without a device there is one buffer of each kind, that of the host, and its
    graph is that `beside` a device which holds nothing."""
    assert plan.weights is not None
    found = _device(plan)
    caches = found["KV device"] + found["RS device"]
    return {
        "model host": plan.weights.total_bytes,
        "caches host": caches,
        "compute host": _host(beside)["compute host"],
    }


def _device(plan: Plan) -> dict[str, int]:
    layout = plan.pool.slots.of(plan.workload.context, plan.workload.batch_size)  # type: ignore[attr-defined]
    by_key = {term.key: term.bytes for term in plan.taken}
    return {
        "model device": by_key["weights"],
        "KV device": plan.pool.cell_bytes(layout),  # type: ignore[attr-defined]
        "RS device": plan.pool.state_bytes(layout),  # type: ignore[attr-defined]
        "compute device": by_key["activations"],
    }


def _host(plan: Plan) -> dict[str, int]:
    by_key = {term.key: term.bytes for term in plan.host_terms}
    return {
        "model host": by_key["weights"],
        "output host": by_key.get("outputs", 0),
        "caches host": by_key.get("kv_cache", 0),
        "compute host": by_key["activations"],
    }


@lru_cache
def _device_of() -> Any:
    return parse_device("9000GiB")


_FLASH: Mapping[int | None, FlashAttention] = {None: "auto", 0: "off", 1: "on"}


def request_of(run: Mapping[str, Any]) -> PlanRequest:
    """The plan of a start."""
    seqs, outputs = run.get("seqs", 1), run.get("outputs", 0)
    unified = run.get("unified", False)
    return PlanRequest(
        engine="llama.cpp",
        version=None if outputs else BEFORE_LIMITED_OUTPUTS,
        device=_device_of(),
        context=run["ctx"] if unified or seqs == 1 else -(-run["ctx"] // seqs),
        parallel=seqs,
        kv_unified=unified,
        ubatch_size=run.get("ubatch"),
        cache_type_k=run.get("k"),
        cache_type_v=run.get("v"),
        flash_attn=_FLASH[run.get("flash")],
        swa_full=run.get("swa_full", False),
        gpu_layers=run.get("layers"),
        n_cpu_moe=run.get("cpu_moe"),
    )
