"""Granite, with experts, windows or Mamba-2 layers, and Bamba."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, full_first
from ..attention.shape import AttentionShape, one_per_head
from ..body.body import Body
from ..body.shapes import DECODER_MLP_BIAS, MLP_BIAS, SAME_WIDTH
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain
from ..states.kinds import all_of, listed
from ..states.mamba import BAMBA_KEYS, mamba2
from ..tensors.names import HYBRID

GRANITE = Architecture(
    types=("granite",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(mlp=MLP_BIAS, named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
GRANITEMOE = GRANITE.relative(
    "granitemoe", body=Body(experts=SAME_WIDTH, named=True), conversion=Conversion()
)
GRANITEMOESHARED = GRANITE.relative(
    "granitemoeshared",
    body=Body(experts=replace(SAME_WIDTH, shared=1, shared_width="shared_intermediate_size")),
    conversion=Conversion(),
)
GRANITE_SWA = GRANITE.relative(
    "granite_swa",
    attention={"kinds": full_first(4), "other": one_per_head},
    body=DECODER_MLP_BIAS,
    conversion=Conversion(),
)
GRANITEMOE_SWA = GRANITEMOESHARED.relative(
    "granitemoe_swa", attention={"kinds": full_first(4), "other": one_per_head}
)
GRANITEMOEHYBRID = GRANITEMOESHARED.relative(
    "granitemoehybrid",
    config={"aliases": LAYER_TYPES},
    attention={"build": hybrid({FULL: plain, LINEAR: mamba2(BAMBA_KEYS)}), "kinds": all_of(LINEAR)},
    tensors=HYBRID,
    conversion={
        "variant": {"num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"]}
    },
    gguf=(
        Gguf(
            architecture="granitehybrid",
            recurrence=Recurrence(form="Mamba-2", layers="without heads"),
        ),
    ),
)
BAMBA = GRANITE.relative(
    "bamba",
    config={"aliases": LAYER_TYPES},
    attention={
        "build": hybrid({FULL: plain, LINEAR: mamba2(BAMBA_KEYS)}, written=False),
        "kinds": listed("attn_layer_indices", FULL, LINEAR, absent=LINEAR),
    },
    body=DECODER_MLP_BIAS,
    tensors=HYBRID,
    conversion=Conversion(variant={"attn_layer_indices": [0]}),
)
GRANITE_SPEECH = Architecture(
    types=("granite_speech", "granite_speech_plus", "granite_docling"),
    config=ConfigKeys(text="text_config"),
)
GRANITE4_VISION = GRANITE_SPEECH.relative(
    "granite4_vision", stacks={"layerwise_projectors": "vision", "spatial_projectors": "vision"}
)
GRANITE4_VISION_TEXT = GRANITE.relative(
    "granite4_vision_text", "granite_docling_text", body=DECODER_MLP_BIAS, conversion=Conversion()
)

ARCHITECTURES = (
    GRANITE,
    GRANITEMOE,
    GRANITEMOESHARED,
    GRANITE_SWA,
    GRANITEMOE_SWA,
    GRANITEMOEHYBRID,
    BAMBA,
    GRANITE_SPEECH,
    GRANITE4_VISION,
    GRANITE4_VISION_TEXT,
)
