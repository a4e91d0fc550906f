"""What the layers of a built model hold: parameters of attention by part, and of recurrent mixers.

Modules are known by what transformers' modelling files call them; no table of the audit is read.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from torch import nn
from transformers import PreTrainedModel

_SELF = (
    *("self_attn", "attn", "attention", "self_attention", "SelfAttention", "attentions"),
    *("LocalSelfAttention", "TransientGlobalSelfAttention", "multi_head_attention"),
    *("ngram_self_attn",),
)
_CROSS = (
    *("encoder_attn", "EncDecAttention", "crossattention", "cross_attn", "cross_attention"),
    *("encoder_decoder_attention",),
)
_RECURRENT = re.compile(
    r"Mixer$|MambaLayer$|DeltaNet$|DeltaAttention$|(?<!Kimi)LinearAttention$|LightningAttention$"
    r"|ShortConv$|RecurrentBlock$|^RwkvSelfAttention$|^xLSTMLayer$"
)
_ATTENTION = re.compile(r"(?<!Cross)Attention$|^ZayaAttention$|^XLNetRelativeAttention$")
_LAYER_LISTS = ("layers", "layer", "h", "block", "blocks", "attentions", "albert_layer_groups")
_PARTS = {
    **dict.fromkeys(
        ("q_proj", "q", "query", "q_a_proj", "q_b_proj", "q_lin", "query_proj", "q_attn"), "q"
    ),
    **dict.fromkeys(("k_proj", "k", "key", "k_lin", "key_proj"), "k"),
    **dict.fromkeys(("v_proj", "v", "value", "v_lin", "value_proj"), "v"),
    **dict.fromkeys(("o_proj", "o", "out_proj", "c_proj", "dense", "out_lin", "output"), "o"),
    **dict.fromkeys(("o_a_proj", "o_b_proj"), "o"),
    **dict.fromkeys(("kv_a_proj_with_mqa", "kv_b_proj", "kv_proj"), "kv"),
    **dict.fromkeys(("qkv_proj", "query_key_value", "Wqkv", "c_attn", "qkv", "in_proj"), "qkv"),
    **{"q_head": "q", "k_head": "k", "v_head": "v", "post_proj": "o"},
    **{"project_q": "q", "project_k": "k", "project_v": "v", "attention_out": "o"},
    **{"q_bias": "q", "v_bias": "v", "Wq": "q", "Wk": "k", "Wv": "v", "Wo": "o"},
}
# Modules with projections and norms of their own that stand beside the heads.
_BESIDE = ("indexer", "compressor")
# Norms of the residual stream that stand inside a module called attention.
_BLOCK_NORMS = ("output.LayerNorm", "LayerNorm", "self_attn_layer_norm", "ln.", "layer_norm")


# Modules that are no attention of the language model, with all that they hold.
_NOT_TEXT = ("experts", "bottleneck", "vision_model", "perceiver_resampler")


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltMixer:
    """A module that mixes tokens: parameters of its parts q, k, v, o, norm, other, or of fused kv
    and qkv. `kind` is self, cross or recurrent.

    The kv of latent attention (MLA) are its down- and up-projection together.
    """

    kind: str
    parts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())


@dataclass(frozen=True, kw_only=True, slots=True)
class BuiltLayer:
    """One layer of the language model, numbered within its stack: `encoder` or `decoder`."""

    stack: str
    index: int
    mixers: tuple[BuiltMixer, ...]


def layers_of(model: PreTrainedModel, *, scattered: bool = False) -> list[BuiltLayer]:
    """The layers of the language model, encoder first. A parameter that several layers share
    counts in the first; with `scattered` attention, which stands in no list of layers, each module
    is a layer by itself. Raises LookupError where no list of layers is found."""
    seen: set[int] = set()
    if scattered:
        return [
            BuiltLayer(stack="decoder", index=index, mixers=(mixer,))
            for index, mixer in enumerate(mixers_of(model, seen))
        ]
    return [
        BuiltLayer(stack=name, index=index, mixers=tuple(mixers_of(layer, seen)))
        for name, stack in stacks_of(model)
        for index, layer in enumerate(layer_list(stack))
    ]


def stacks_of(model: PreTrainedModel) -> Iterator[tuple[str, nn.Module]]:
    """The stacks of the language model. A single one counts as the decoder, whatever it does."""
    decoder = decoder_of(model)
    if model.config.is_encoder_decoder and (encoder := model.get_encoder()) is not decoder:
        yield "encoder", encoder
    yield "decoder", decoder


def decoder_of(model: PreTrainedModel) -> nn.Module:
    """Some models call another module so: ModernBERT's decoder is its output head."""
    found = model.get_decoder()
    return model.base_model if isinstance(found, (nn.Linear, nn.Identity)) else found


def layer_list(stack: nn.Module) -> nn.ModuleList:
    """The list of layers nearest to the top of `stack`."""
    level = [stack]
    while level:
        for module in level:
            for name, child in module.named_children():
                if name in _LAYER_LISTS and isinstance(child, nn.ModuleList):
                    return child
        level = [child for module in level for child in module.children()]
    raise LookupError(f"no list of layers in {type(stack).__name__}")


def mixers_of(layer: nn.Module, seen: set[int] | None = None) -> Iterator[BuiltMixer]:
    """The outermost modules of `layer` that mix tokens, in order. `seen` are ids of parameters
    that were counted."""
    seen = set() if seen is None else seen
    if type(layer).__name__ == "MultiHeadAttention":  # XLM lists its attentions apart from layers
        yield BuiltMixer(kind="self", parts=parts_of(layer, seen))
        return
    for name, child in layer.named_children():
        kind = _kind(name, child)
        if kind is None and not any(word in name for word in _NOT_TEXT):
            yield from mixers_of(child, seen)
        elif kind is not None and isinstance(child, nn.ModuleList):  # LongCat has two
            yield from (BuiltMixer(kind=kind, parts=parts_of(one, seen)) for one in child)
        elif kind is not None:
            yield BuiltMixer(kind=kind, parts=_with_output(parts_of(child, seen), layer))


def _kind(name: str, module: nn.Module) -> str | None:
    class_name = type(module).__name__
    if _RECURRENT.search(class_name):
        return "recurrent"
    if class_name == "PerceiverLayer":  # called attention, and holds one
        return None
    if name in _CROSS or class_name == "BltCrossAttention":
        return "cross"
    return "self" if name in _SELF or _ATTENTION.search(class_name) else None


def parts_of(mixer: nn.Module, seen: set[int]) -> dict[str, int]:
    parts: dict[str, int] = {}
    for name, parameter in mixer.named_parameters():
        if id(parameter) not in seen and not name.startswith(_BLOCK_NORMS):
            seen.add(id(parameter))
            part = _part_of(name)
            parts[part] = parts.get(part, 0) + parameter.numel()
    return parts


def _with_output(parts: dict[str, int], layer: nn.Module) -> dict[str, int]:
    """SqueezeBERT's output projection stands beside the attention."""
    beside = getattr(layer, "post_attention", None)
    if beside is None:
        return parts
    return {**parts, "o": sum(parameter.numel() for parameter in beside.conv1d.parameters())}


def _part_of(name: str) -> str:
    if any(f".{piece}." in f".{name}" for piece in _BESIDE):
        return "other"
    if "norm" in name.lower() or "_ln." in name:
        return "norm"
    return next((_PARTS[piece] for piece in name.split(".") if piece in _PARTS), "other")
