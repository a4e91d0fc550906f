"""The widths of a model's layers, of which its compute buffers are made: from the tensors of a GGUF
file, or from the matrices that its config describes."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache

from headcount.arch.modules.module import Module
from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import Layer
from headcount.sources.safetensors import TensorInfo

from ...parallel import rank_mixer
from ...planned_model import PlannedModel
from ...stored import weighed
from .block import Block, Experts, Latent

# Any of which says that the MLP does not read what attention reads.
_OTHER_NORMS = frozenset({"ffn_norm", "post_ffw_norm", "attn_norm_2", "post_attention_norm"})
_LAYER = re.compile(r"(?:dec\.)?blk\.(\d+)\.([a-z0-9_]+)\.weight")


@lru_cache(maxsize=64)
def blocks_of(model: PlannedModel, tp: int) -> tuple[Block, ...]:
    """Of one of `tp` devices, a block a layer. Where nothing tells the widths of the MLPs, they are
    taken for four times the hidden size."""
    widths = _of_file(model, model.tensors) if model.tensors else _of_config(model)
    hidden = model.spec.hidden_size
    last = {layer.index: layer for layer in model.spec.layers}  # of two stacks the decoder's
    return tuple(
        _of_rank(_with_attention(widths.get(i) or Block(width=4 * hidden), layer, tp), tp)
        for i, layer in sorted(last.items())
    )


def _of_rank(block: Block, tp: int) -> Block:
    experts = block.experts
    if tp > 1 and experts:
        experts = experts._replace(width=-(-experts.width // tp))
    return replace(
        block, width=-(-block.width // tp), shared=-(-block.shared // tp), experts=experts
    )


def _with_attention(block: Block, layer: Layer, tp: int) -> Block:
    for mixer in (rank_mixer(mixer, tp) for mixer in layer.mixers):
        block = _with_mixer(block, mixer)
    return block


def _with_mixer(block: Block, mixer: Mixer) -> Block:
    if isinstance(mixer, LatentAttention) and not mixer.expanded:
        latent = Latent(
            query=mixer.q_lora_rank or 0,
            rotated=mixer.qk_rope_head_dim,
            plain=mixer.qk_nope_head_dim,
            rank=mixer.kv_lora_rank,
            values=mixer.v_head_dim,
        )
        return replace(
            block,
            heads=mixer.num_attention_heads,
            window=mixer.window,
            latent=latent,
            indexed=_is_indexed(mixer),
        )
    if not isinstance(mixer, (Attention, LatentAttention)):
        return block
    heads, shared = mixer.num_attention_heads, mixer.num_key_value_heads
    shared = heads if isinstance(mixer, LatentAttention) else shared
    return replace(
        block,
        heads=heads,
        query=heads * mixer.head_dim,
        read=heads * mixer.v_head_dim,
        key=shared * mixer.head_dim,
        value=shared * mixer.v_head_dim,
        window=mixer.window,
        cached=getattr(mixer, "cached", True),
        indexed=_is_indexed(mixer),
    )


def _is_indexed(mixer: Mixer) -> bool:
    """Whether it keeps keys of an indexer, which chooses the tokens that it attends to. (What a
    layer that runs again keeps is as large as its own.)"""
    own = mixer.key_value_elements(1)
    return any(s.per_token % own for s in mixer.states if own and s.sees == "decoder")


def _of_file(model: PlannedModel, tensors: Mapping[str, TensorInfo]) -> dict[int, Block]:
    said = model.spec.origins.get("expert_used_count")
    used = said.value if said and isinstance(said.value, int) else 1
    shapes: dict[int, dict[str, tuple[int, ...]]] = defaultdict(dict)
    for name, tensor in tensors.items():
        if match := _LAYER.match(name):
            shapes[int(match[1])][match[2]] = tensor.shape
    return {layer: _of_shapes(found, used) for layer, found in shapes.items()}


def _of_shapes(shapes: Mapping[str, tuple[int, ...]], used: int) -> Block:
    down, experts = shapes.get("ffn_down"), shapes.get("ffn_down_exps")
    shared = shapes.get("ffn_down_shexp")
    up = shapes.get("ffn_up", (0,))
    return Block(
        width=down[-1] if down else 0,
        gated="ffn_gate" in shapes,
        stored_once=bool(down) and "ffn_gate" not in shapes and up[0] == 2 * (down or (0,))[-1],
        experts=Experts(experts[0], used, experts[-1]) if experts else None,
        shared=shared[-1] if shared else 0,
        recurrent=2 * sum(s[0] for name, s in shapes.items() if name.startswith("ssm_in")),
        one_norm="attn_norm" in shapes and not _OTHER_NORMS & shapes.keys() and bool(down),
    )


def _of_config(model: PlannedModel) -> dict[int, Block]:
    found = weighed(model, None, 16)
    modules: dict[int, list[Module]] = defaultdict(list)
    for module, _ in found.modules if found else ():
        if module.layer is not None and module.kind != "tower":
            modules[module.layer].append(module)
    used = _visited(model, modules)
    return {layer: _of_modules(own, used) for layer, own in modules.items()}


def _visited(model: PlannedModel, modules: Mapping[int, list[Module]]) -> int:
    """Experts of a layer that a token visits, by the parameters that it does not."""
    experts = [module for own in modules.values() for module in own if module.kind == "experts"]
    active, known = model.active_parameters, model.spec.parameters
    if not experts or active is None or known is None:
        return 1
    one_of_each = sum(module.rows * module.columns for module in experts)
    return max(1, experts[0].copies - round((known - active) / one_of_each))


def _of_modules(modules: list[Module], used: int) -> Block:
    widths = {kind: list(_down(modules, kind)) for kind in ("mlp", "experts", "shared experts")}
    dense, experts, shared = widths.values()
    return Block(
        width=sum(m.columns for m in dense),
        gated=any(m.part == "gate" and m.kind == "mlp" for m in modules),
        experts=Experts(experts[0].copies, used, experts[0].columns) if experts else None,
        shared=sum(m.columns for m in shared),
        recurrent=2 * sum(m.rows for m in modules if m.kind == "recurrent"),
    )


def _down(modules: list[Module], kind: str) -> Iterator[Module]:
    return (m for m in modules if m.kind == kind and m.part == "down")
