"""Which weights and caches lie on the device, and which in the host's memory.

The input embedding never leaves the host. -ngl counts the last layers of the model, and the output
as one more, after them: it is the first to go on the device (load_tensors of src/llama-model.cpp).
A tied output is loaded there as a copy of the embedding. Experts go by --n-cpu-moe.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

from headcount.arch.modules.module import Module
from headcount.model.spec import ModelSpec
from headcount.sources.safetensors import TensorInfo

from ...planned_model import PlannedModel
from ...request import PlanRequest, Workload
from ...stored import weighed
from ...weights import wide_bits
from .runs import runs_of

_LAYER = re.compile(r"(?:(?:enc\.|dec\.)?blk|posnet|convnext)\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(up|down|gate|gate_up)_(ch|)exps")  # common/common.h
_NAMED: Mapping[str, Literal["embedding", "head"]] = {
    "token_embd.weight": "embedding",
    "output.weight": "head",
}
_INPUTS = ("token_embd", "position_embd", "token_types", "per_layer_token_embd")
# Outside the layers by their names, and made with the number of the first of them (src/models)
_WITH_THE_FIRST = ("per_layer_model_proj", "per_layer_proj_norm", "conv1d", "hrm.")
_WITHOUT_A_COPY = "bitnet"  # its logits are computed with the embedding where that lies


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`layers` of the model, of which the last `on_device` and the output are on the device, and of
    the first `experts_on_host` the experts are not. `caches`: those of layers on the device are
    there, too."""

    layers: int
    on_device: int
    output: bool = True
    experts_on_host: int = 0
    caches: bool = True

    @property
    def is_whole(self) -> bool:
        return self.output and self.on_device == self.layers and not self.experts_on_host

    def holds(self, layer: int) -> bool:
        """Whether a layer is on the device."""
        return layer >= self.layers - self.on_device

    def holds_cache(self, layer: int) -> bool:
        return self.caches and self.holds(layer)

    def holds_experts(self, layer: int) -> bool:
        return self.holds(layer) and layer >= self.experts_on_host


def layers_of(spec: ModelSpec) -> int:
    """As -ngl counts them: of an encoder and a decoder, those with one number are one; of a GGUF
    file those that predict further tokens, too, and each run of layers that run again."""
    said = spec.origins.get("block_count")
    return max(len(runs_of(spec)), said.value if said and isinstance(said.value, int) else 0)


def _blocks(spec: ModelSpec) -> int:
    """The layers that have weights which are loaded."""
    return max(layer.index for layer in spec.layers) + 1


def placement(request: PlanRequest, layers: int) -> Placement:
    """As --gpu-layers, --n-cpu-moe, --cpu-moe and --no-kv-offload say; without them all of it."""
    asked = request.gpu_layers
    given = layers + 1 if asked is None else min(asked, layers + 1)
    return Placement(
        layers=layers,
        on_device=max(0, given - 1),
        output=given > 0,
        experts_on_host=layers if request.cpu_moe else min(request.n_cpu_moe or 0, layers),
        caches=not request.no_kv_offload,
    )


class Share(NamedTuple):
    """Bytes of weights: of each layer on the device, of what the device has beside them, and of
    the host; in `total` each counts once."""

    layers: tuple[int, ...]
    outside: int
    host: int
    total: int

    @property
    def device(self) -> int:
        return sum(self.layers) + self.outside


class _Part(NamedTuple):
    """Bytes of weights of a layer, None: of none. `inputs` are read by numbers of tokens, as the
    embedding is; `head` is the matrix of the output, `output` what stands beside it."""

    place: Literal["embedding", "inputs", "layer", "experts", "head", "output"]
    layer: int | None
    nbytes: int


def placed_weights(model: PlannedModel, work: Workload, where: Placement) -> Share | None:
    """None where neither the files nor the config tell the matrices apart."""
    return _share(model, work.dtype, work.compute_dtype, where) if work.weights else None


@lru_cache(maxsize=256)
def _share(
    model: PlannedModel, dtype: str | None, compute_dtype: str, where: Placement
) -> Share | None:
    parts = _parts(model, dtype, compute_dtype)
    if parts is None:
        return None
    layers, outside = [0] * where.layers, 0
    has_no_head = not any(part.place == "head" for part in parts)
    is_copied = has_no_head and model.spec.is_cached and model.spec.model_type != _WITHOUT_A_COPY
    for part in parts:
        if part.layer is not None:
            layers[part.layer] += part.nbytes * _is_on_device(part, where)
        elif _is_on_device(part, where) or (
            part.place == "embedding" and is_copied and where.output
        ):
            outside += part.nbytes
    host = sum(part.nbytes for part in parts if not _is_on_device(part, where))
    return Share(tuple(layers), outside, host, sum(part.nbytes for part in parts))


def largest_on_host(model: PlannedModel, work: Workload, where: Placement) -> int:
    """Bytes of the largest matrix that the layers and the output have in the host's memory, 0 where
    none is or nothing tells."""
    if where.is_whole:
        return 0
    parts = _parts(model, work.dtype, work.compute_dtype) if work.weights else None
    beside = (p for p in parts or () if p.place in ("layer", "experts", "head", "output"))
    return max((part.nbytes for part in beside if not _is_on_device(part, where)), default=0)


def _is_on_device(part: _Part, where: Placement) -> bool:
    if part.place in ("embedding", "inputs"):
        return False
    if part.layer is None:
        return where.output
    held = where.holds_experts if part.place == "experts" else where.holds
    return held(part.layer)


@lru_cache(maxsize=64)
def _parts(model: PlannedModel, dtype: str | None, compute_dtype: str) -> tuple[_Part, ...] | None:
    layers = layers_of(model.spec)
    if model.tensors is not None and dtype is None and model.weights_bytes is not None:
        return tuple(_of_tensors(model.tensors, _blocks(model.spec)))
    found = weighed(model, dtype, wide_bits(model.spec, compute_dtype))
    if found is None:
        return None
    parts = [_of_module(module, size, layers) for module, size in found.modules]
    each, rest = divmod(found.others, layers)
    parts += [_Part("layer", i, each + (rest if i == 0 else 0)) for i in range(layers)]
    return tuple(parts)


def _of_tensors(tensors: Mapping[str, TensorInfo], blocks: int) -> Iterator[_Part]:
    """Of a GGUF file."""
    for name, tensor in tensors.items():
        match, nbytes = _LAYER.match(name), tensor.nbytes
        if name in _NAMED:
            yield _Part(_NAMED[name], None, nbytes)
        elif name.startswith(_WITH_THE_FIRST):
            yield _Part("layer", 0, nbytes)
        elif match is None:
            yield _Part("inputs" if name.startswith(_INPUTS) else "output", None, nbytes)
        elif int(match[1]) < blocks:  # what predicts further tokens is loaded for drafting only
            yield _Part("experts" if _EXPERTS.search(name) else "layer", int(match[1]), nbytes)


def _of_module(module: Module, nbytes: int, layers: int) -> _Part:
    if module.kind == "embedding":
        return _Part("embedding" if module.name == "embed_tokens" else "inputs", None, nbytes)
    if module.kind == "head":
        return _Part("head", None, nbytes)
    if module.layer is None or module.kind == "tower" or module.layer >= layers:
        return _Part("output", None, nbytes)
    return _Part("experts" if module.kind == "experts" else "layer", module.layer, nbytes)
