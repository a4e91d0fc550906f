"""Decoders that bytes, proteins or the physical world condition."""

from collections.abc import Iterator
from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture, ConfigKeys, Conversion, Verification
from ..attention.layers import attention, layer_count, side_by_side
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Mlp
from ..config_view import ConfigView
from ..tensors.names import LLAMA as LLAMA_NAMES
from ..tensors.names import UNKNOWN, TensorNames, under
from ..tying import never, own_word

COSMOS3_NAMES = TensorNames(
    modules=under("self_attn", q="to_q", k="to_k", v="to_v", o="to_out")
    | {"self_attn.norm_q": "norm", "self_attn.norm_k": "norm"}
    | {**LLAMA_NAMES.modules}
)

# Beside the attention, adapters that attend to a protein with all heads and keep nothing.
EVOLLA_NAMES = replace(
    LLAMA_NAMES,
    modules={
        **LLAMA_NAMES.modules,
        **dict.fromkeys((f"adapter.{gate}" for gate in ("gate_attention", "gate_ffw")), ""),
        **dict.fromkeys((f"adapter.{m}" for m in ("query", "out_proj", "attention_norm")), ""),
        **dict.fromkeys((f"adapter.{k}_protein" for k in ("key", "value")), ""),
        **dict.fromkeys((f"adapter.ff.{m}" for m in ("norm", "fc1", "fc2")), ""),
    },
)


def _local(shape: AttentionShape, view: ConfigView, stack: str, *, last: bool) -> Iterator[Layer]:
    """Every layer crosses with `cross_attn_all_layers`, else the `last` or the first alone."""
    own, count = attention(shape, view), layer_count(view)
    norms = 2 * own.hidden_size
    cross = replace(side_by_side(own), norm_parameters=norms, cached=False)
    only = None if view.flag("cross_attn_all_layers") else count - 1 if last else 0
    for index in range(count):
        mixers = (own, cross) if only in (None, index) else (own,)
        yield Layer(index=index, mixers=mixers, stack=stack)


def _uncached(shape: AttentionShape, view: ConfigView, stack: str) -> Iterator[Layer]:
    mixer = replace(attention(shape, view), cached=False)
    return (Layer(index=i, mixers=(mixer,), stack=stack) for i in range(layer_count(view)))


def bytes_and_patches(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Byte Latent Transformer (arXiv 2412.09871): a local encoder and a local decoder of bytes,
    each with a cache, around a global model of patches, which keeps nothing. Patches are the
    queries of the encoder's cross-attention, and what the decoder's attends to; neither is kept. A
    small model of its own finds where patches end."""
    return (
        *_local(shape, view.child("encoder_config"), "encoder", last=True),
        *_uncached(shape, view.child("global_config"), "global"),
        *_local(shape, view.child("decoder_config"), "decoder", last=False),
        *(
            _uncached(shape, view.child("patcher_config"), "patcher")
            if view.flag("patch_in_forward")
            else ()
        ),
    )


BLT = Architecture(
    types=("blt",),
    attention=AttentionShape(build=bytes_and_patches, fixed_head_dim=True),
    tensors=UNKNOWN,
    conversion=Conversion(
        refused="transformers fails to generate with a cache, so that fewer K/V heads save nothing"
    ),
    verification=Verification(scattered=True),
)
EVOLLA = Architecture(
    types=("evolla",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    uncounted="its protein encoder is not counted",
    tensors=EVOLLA_NAMES,
    stacks={"protein_encoder.model.encoder.layer": "encoder"},
    rotary="halves",
)
COSMOS3_EDGE = Architecture(
    types=("cosmos3_edge",), config=ConfigKeys(text="text_config", tied=never)
)
COSMOS3_EDGE_TEXT = Architecture(
    types=("cosmos3_edge_text",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(mlp=Mlp(gated=False, bias="mlp_bias")),
    tensors=COSMOS3_NAMES,
    rotary="halves",
    conversion=Conversion(width_checked=True),
)
COSMOS3_OMNI = COSMOS3_EDGE.relative(
    "cosmos3_omni", config={"tied": own_word}, tensors=COSMOS3_NAMES, stacks={"blocks": "vision"}
)

ARCHITECTURES = (BLT, EVOLLA, COSMOS3_EDGE, COSMOS3_EDGE_TEXT, COSMOS3_OMNI)
