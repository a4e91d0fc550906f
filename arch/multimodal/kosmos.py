"""Kosmos-2 and Kosmos-2.5."""

from ..architecture import Architecture, ConfigKeys
from ..attention.mha import ENCODER_HEADS, MHA_BIASED
from ..attention.shape import AttentionShape
from ..tensors.names import BART as BART_NAMES
from ..tying import either_word, text_word

KOSMOS_2 = Architecture(
    types=("kosmos-2",), config=ConfigKeys(text="text_config", tied=either_word)
)
KOSMOS_2_TEXT_MODEL = Architecture(
    types=("kosmos_2_text_model",),
    attention=AttentionShape(
        qkv_bias=True,
        o_bias=True,
        norm="output_bias",
        fixed_head_dim=True,
        kv_heads_from="query heads",
        cross="add_cross_attention",
    ),
    tensors=BART_NAMES,
)
KOSMOS_2_VISION_MODEL = Architecture(
    types=("kosmos_2_vision_model",), attention=ENCODER_HEADS, tensors=BART_NAMES
)
KOSMOS_2_5 = KOSMOS_2.relative("kosmos-2.5", config={"tied": text_word})
KOSMOS_2_5_TEXT_MODEL = KOSMOS_2_TEXT_MODEL.relative("kosmos_2_5_text_model", attention=MHA_BIASED)

ARCHITECTURES = (
    KOSMOS_2,
    KOSMOS_2_TEXT_MODEL,
    KOSMOS_2_VISION_MODEL,
    KOSMOS_2_5,
    KOSMOS_2_5_TEXT_MODEL,
)
