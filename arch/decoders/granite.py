"""Granite, with experts, windows or Mamba-2 layers, and Bamba."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture, Conversion
from ..attention.layer_kinds import FULL, full_first
from ..attention.more_parameters import sink_per_head
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.shared import DECODER_MLP_BIAS, MLP_BIAS, SAME_WIDTH
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain_attention
from ..states.kinds import all_of, listed_layers
from ..states.mamba import BAMBA_KEYS, mamba2
from ..tensors.names import HYBRID_NAMES

GRANITE = Architecture(
    types=("granite",),
    attention=LLAMA_ATTENTION,
    body=Body(mlp=MLP_BIAS, named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
_EXPERTS = replace(SAME_WIDTH, shared=1, shared_width="shared_intermediate_size")
GRANITEMOESHARED = GRANITE.relative("granitemoeshared", body=Body(experts=_EXPERTS))

ARCHITECTURES = (
    GRANITE,
    GRANITE.relative("granitemoe", body=Body(experts=SAME_WIDTH, named=True)),
    GRANITEMOESHARED,
    GRANITE.relative(
        "granite_swa",
        attention={"kinds": full_first(4), "other": sink_per_head},
        body=DECODER_MLP_BIAS,
    ),
    GRANITEMOESHARED.relative(
        "granitemoe_swa", attention={"kinds": full_first(4), "other": sink_per_head}
    ),
    GRANITEMOESHARED.relative(
        "granitemoehybrid",
        config={"aliases": LAYER_TYPES},
        attention={
            "build": hybrid({FULL: plain_attention, LINEAR: mamba2(BAMBA_KEYS)}),
            "kinds": all_of(LINEAR),
        },
        body=Body(experts=replace(_EXPERTS, can_be_none=True)),  # Granite 4.0 H Micro
        tensors=HYBRID_NAMES,
        conversion=Conversion(
            variant={"num_hidden_layers": 2, "layer_types": ["full_attention", "full_attention"]}
        ),
        gguf=(
            Gguf(
                architecture="granitehybrid",
                recurrence=Recurrence(form="Mamba-2", layers="without heads"),
            ),
        ),
    ),
    GRANITE.relative(
        "bamba",
        config={"aliases": LAYER_TYPES},
        attention={
            "build": hybrid({FULL: plain_attention, LINEAR: mamba2(BAMBA_KEYS)}, written=False),
            "kinds": listed_layers("attn_layer_indices", FULL, LINEAR, absent=LINEAR),
        },
        body=DECODER_MLP_BIAS,
        tensors=HYBRID_NAMES,
        conversion=Conversion(variant={"attn_layer_indices": [0]}),
    ),
    MULTIMODAL.relative("granite_speech", "granite_speech_plus", "granite_docling"),
    MULTIMODAL.relative(
        "granite4_vision", stacks={"layerwise_projectors": "vision", "spatial_projectors": "vision"}
    ),
    GRANITE.relative("granite4_vision_text", "granite_docling_text", body=DECODER_MLP_BIAS),
)
