"""The sizes of a model's layers, of which its compute buffers are made: from the keys and tensors
of a GGUF file, or from the matrices that its config describes."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from headcount.arch.modules.module import Module
from headcount.model.mixers import Attention, LatentAttention, Mixer, Recurrent
from headcount.model.spec import Layer

from ...parallel import rank_mixer
from ...planned_model import PlannedModel
from ...stored import weighed
from .runs import runs_of
from .sizes import GraphSizes, LayerSizes, file_sizes, graph_sizes, held_of, rotation

# What a config calls the sizes of an indexer
_INDEXER = {
    "K": "index_topk",
    "attention.indexer.head_count": "index_n_heads",
    "attention.indexer.key_length": "index_head_dim",
}
_LAYER = re.compile(r"(?:enc\.|dec\.)?blk\.(\d+)\.(.*)")


@lru_cache(maxsize=64)
def sizes_of_graph(model: PlannedModel, tp: int) -> GraphSizes:
    """Of one of `tp` devices."""
    layers = _of_file(model, model.tensors) if model.tensors else _of_config(model, tp)
    return graph_sizes(_outer_sizes(model, tp), tuple(layers))


def _outer_sizes(model: PlannedModel, tp: int) -> dict[str, int]:
    """Outside the layers."""
    if not model.tensors:
        return {**_of_spec(model, tp), **_expert_sizes(model, tp), **_widest(model, tp)}
    shapes = {
        name.removesuffix(".weight"): tensor.shape
        for name, tensor in model.tensors.items()
        if not _LAYER.match(name)
    }
    return file_sizes(_keys(model), shapes, None)


def _widest(model: PlannedModel, tp: int) -> dict[str, int]:
    """Of the attention with the most values, as files say it of all layers."""
    found = [_of_mixer(rank_mixer(m, tp)) for layer in _layers(model) for m in layer.mixers]
    return max(found, key=lambda one: one.get("G", 0) * one.get("dv", 0), default={})


def _sorted(sizes: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(sizes.items()))


def _layers(model: PlannedModel) -> list[Layer]:
    """Of two stacks the decoder's."""
    last = {layer.index: layer for layer in model.spec.layers}
    return [last[index] for index in sorted(last)]


def _keys(model: PlannedModel) -> dict[str, Any]:
    keys = {name: origin.value for name, origin in model.spec.origins.items()}
    return {**keys, "vocab_size": model.spec.vocab_size}


def _of_file(model: PlannedModel, tensors: Mapping[str, Any]) -> Iterator[LayerSizes]:
    names: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, tensor in tensors.items():
        if match := _LAYER.match(name):
            names[int(match[1])][match[2]] = tensor.shape
    keys, layers = _keys(model), {layer.index: layer for layer in _layers(model)}
    for layer in map(layers.get, runs_of(model.spec)):
        if layer is None:
            continue
        own = names[layer.index]
        shapes = {name.removesuffix(".weight"): shape for name, shape in own.items()}
        yield LayerSizes(
            holds=held_of(own, keys),
            sizes=_sorted(file_sizes(keys, shapes, layer.index)),
            window=_window(layer),
        )


def _window(layer: Layer) -> int | None:
    return next((mixer.window for mixer in layer.mixers if mixer.window is not None), None)


def _of_config(model: PlannedModel, tp: int) -> Iterator[LayerSizes]:
    modules: dict[int, list[Module]] = defaultdict(list)
    for module in _modules(model):
        if module.layer is not None and module.kind != "tower":
            modules[module.layer].append(module)
    experts = _expert_sizes(model, tp)
    for layer in _layers(model):
        own = modules[layer.index]
        sizes = {**_of_spec(model, tp), **experts, **_of_modules(own, model.spec.hidden_size, tp)}
        for mixer in layer.mixers:
            sizes |= _of_mixer(rank_mixer(mixer, tp))
        yield LayerSizes(
            holds=frozenset(_held(model, layer, own)), sizes=_sorted(sizes), window=_window(layer)
        )


def _modules(model: PlannedModel) -> tuple[Module, ...]:
    found = weighed(model, None, 16)
    return tuple(module for module, _ in found.modules) if found else ()


def _of_spec(model: PlannedModel, tp: int) -> dict[str, int]:
    said = {name: model.config.get(key) for name, key in _INDEXER.items()}
    indexer = {name: value for name, value in said.items() if isinstance(value, int)}
    each = model.config.get("hidden_size_per_layer_input")
    inputs = (
        {"inp_gate.1": each, "per_layer_model_proj.1": each * len(_layers(model))} if each else {}
    )
    return {
        "E": model.spec.hidden_size,
        "V": -(-(model.spec.vocab_size or 0) // tp),
        **indexer,
        **inputs,
    }


def _held(model: PlannedModel, layer: Layer, modules: Iterable[Module]) -> Iterator[str]:
    """As `held_of` says of the same layer in a file."""
    if model.config.get("use_parallel_residual"):
        yield "parallel"
    if any(isinstance(mixer, (Attention, LatentAttention)) for mixer in layer.mixers):
        yield "attention"
    if any(isinstance(mixer, Recurrent) for mixer in layer.mixers):
        yield "recurrent"
    kinds = {module.kind for module in modules}
    yield from (name for name in ("mlp", "experts") if name in kinds)
    if not kinds & {"mlp", "experts"}:
        yield "mlp"  # of a model whose matrices are not known


def _of_mixer(mixer: Mixer) -> dict[str, int]:
    if isinstance(mixer, LatentAttention):
        return _of_latent(mixer)
    if not isinstance(mixer, Attention):
        return {}
    heads, shared, head, value = (
        *(mixer.num_attention_heads, mixer.num_key_value_heads),
        *(mixer.head_dim, mixer.v_head_dim),
    )
    return {
        **{"H": heads, "G": shared, "dk": head, "dv": value, "rot": head},
        **{"KR": rotation(head) or 0},
        "attn_q.1": heads * head * (2 if mixer.query_gate else 1),
        "attn_k.1": shared * head,
        "attn_v.1": shared * value,
        "attn_qkv.1": (heads + shared) * head + shared * value,
        "attn_output.0": heads * value,
    }


def _of_latent(mixer: LatentAttention) -> dict[str, int]:
    heads, rope = mixer.num_attention_heads, mixer.qk_rope_head_dim
    head, rank = mixer.qk_nope_head_dim + rope, mixer.kv_lora_rank
    return {
        "H": heads,
        "G": heads if mixer.expanded else 1,
        "dk": head if mixer.expanded else rank + rope,
        "dv": mixer.v_head_dim if mixer.expanded else rank,
        "rot": rope,
        "KR": rotation(rank + rope) or 0,
        "attention.kv_lora_rank": rank,
        "attention.q_lora_rank": mixer.q_lora_rank or 0,
        "attention.key_length_mla": head,
        "attention.value_length_mla": mixer.v_head_dim,
        "attn_q.1": heads * head,
        "attn_q_b.1": heads * head,
        "attn_kv_a_mqa.1": rank + rope,
        "attn_output.0": heads * mixer.v_head_dim,
    }


def _expert_sizes(model: PlannedModel, tp: int) -> dict[str, int]:
    """Experts of a layer, and how many of them a token visits, by the parameters that it does not;
    all layers have as many."""
    experts = [module for module in _modules(model) if module.kind == "experts"]
    if not experts:
        return {}
    sizes = {"X": experts[0].copies, "used": 1}
    active, known = model.active_parameters, model.spec.parameters
    if active is not None and known is not None:
        one_of_each = sum(module.rows * module.columns for module in experts)
        sizes["used"] = max(1, experts[0].copies - round((known - active) / one_of_each))
    down = next((m for m in experts if m.part == "down"), None)
    width = -(-down.columns // tp) if down else 0
    # A file that has no other MLPs may say the width as if it were theirs.
    return {**sizes, **({"fe": width, "FF": width} if width else {})}


def _of_modules(modules: list[Module], hidden: int, tp: int) -> dict[str, int]:
    """Of the MLPs; where nothing tells their width it is taken for four times the hidden size."""
    dense, shared = (sum(_down(modules, kind)) for kind in ("mlp", "shared experts"))
    if not modules:
        dense = 4 * hidden
    width = -(-dense // tp)
    return {
        **({"FF": width, "ffn_down.0": width} if width else {}),
        **({"SH": -(-shared // tp)} if shared else {}),
    }


def _down(modules: list[Module], kind: str) -> Iterator[int]:
    return (m.columns for m in modules if m.kind == kind and m.part == "down")
