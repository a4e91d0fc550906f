"""Decoders that bytes (BLT), proteins (Evolla) or the physical world (Cosmos) condition."""

from collections.abc import Iterator
from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys, Conversion, Verification
from ..attention.layers import attention, cross_attention_beside, layer_count
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.shared import PLAIN_MLP_BIAS
from ..config_view import ConfigView
from ..tensors.names import LLAMA_NAMES, UNKNOWN_NAMES, TensorNames, under
from ..tying import never


def _byte_layers(
    shape: AttentionShape, view: ConfigView, stack: str, *, last: bool
) -> Iterator[Layer]:
    """Every layer crosses with `cross_attn_all_layers`, else the `last` or the first alone."""
    own, count = attention(shape, view), layer_count(view)
    norms = 2 * own.hidden_size
    cross = replace(cross_attention_beside(own), norm_parameters=norms, cached=False)
    only = None if view.flag("cross_attn_all_layers") else count - 1 if last else 0
    for index in range(count):
        mixers = (own, cross) if only in (None, index) else (own,)
        yield Layer(index=index, mixers=mixers, stack=stack)


def _patch_layers(shape: AttentionShape, view: ConfigView, stack: str) -> Iterator[Layer]:
    mixer = replace(attention(shape, view), cached=False)
    return (Layer(index=i, mixers=(mixer,), stack=stack) for i in range(layer_count(view)))


def blt_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """Byte Latent Transformer (arXiv 2412.09871): a local encoder and a local decoder of bytes,
    each with a cache, around a global model of patches, which keeps nothing. Patches are the
    queries of the encoder's cross-attention, and what the decoder's attends to; neither is kept. A
    small model of its own finds where patches end."""
    return (
        *_byte_layers(shape, view.child("encoder_config"), "encoder", last=True),
        *_patch_layers(shape, view.child("global_config"), "global"),
        *_byte_layers(shape, view.child("decoder_config"), "decoder", last=False),
        *(
            _patch_layers(shape, view.child("patcher_config"), "patcher")
            if view.flag("patch_in_forward")
            else ()
        ),
    )


COSMOS3_NAMES = TensorNames(
    modules=under("self_attn", q="to_q", k="to_k", v="to_v", o="to_out")
    | {"self_attn.norm_q": "norm", "self_attn.norm_k": "norm"}
    | {**LLAMA_NAMES.modules}
)
# Beside the attention, adapters that attend to a protein with all heads and keep nothing.
EVOLLA_NAMES = LLAMA_NAMES.also(
    {
        **dict.fromkeys((f"adapter.{gate}" for gate in ("gate_attention", "gate_ffw")), ""),
        **dict.fromkeys((f"adapter.{m}" for m in ("query", "out_proj", "attention_norm")), ""),
        **dict.fromkeys((f"adapter.{k}_protein" for k in ("key", "value")), ""),
        **dict.fromkeys((f"adapter.ff.{m}" for m in ("norm", "fc1", "fc2")), ""),
    }
)

ARCHITECTURES = (
    Architecture(
        types=("blt",),
        attention=AttentionShape(build=blt_layers, fixed_head_dim=True),
        tensors=UNKNOWN_NAMES,
        conversion=Conversion(
            refused="transformers fails to generate with a cache, so that fewer K/V heads save"
            " nothing"
        ),
        verification=Verification(scattered=True),
    ),
    Architecture(
        types=("evolla",),
        config=ConfigKeys(tied=never),
        attention=LLAMA_ATTENTION,
        uncounted="its protein encoder is not counted",
        tensors=EVOLLA_NAMES,
        stacks={"protein_encoder.model.encoder.layer": "encoder"},
        rotary="halves",
    ),
    MULTIMODAL.relative("cosmos3_edge", config={"tied": never}),
    Architecture(
        types=("cosmos3_edge_text",),
        attention=LLAMA_ATTENTION,
        body=Body(mlp=PLAIN_MLP_BIAS),
        tensors=COSMOS3_NAMES,
        rotary="halves",
        conversion=Conversion(width_checked=True),
    ),
    MULTIMODAL.relative("cosmos3_omni", tensors=COSMOS3_NAMES, stacks={"blocks": "vision"}),
)
