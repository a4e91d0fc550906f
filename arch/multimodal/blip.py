"""BLIP and GIT: text models that attend to images."""

from ..architecture import Architecture, ConfigKeys
from ..attention.mha import ENCODER_HEADS, MHA_BIASED
from ..attention.shape import AttentionShape
from ..tensors.names import BART as BART_NAMES
from ..tensors.names import BERT as BERT_NAMES
from ..tying import text_word

BLIP = Architecture(types=("blip",), config=ConfigKeys(text="text_config"))
BLIP_TEXT_MODEL = Architecture(
    types=("blip_text_model",),
    attention=AttentionShape(
        qkv_bias=True,
        o_bias=True,
        fixed_head_dim=True,
        kv_heads_from="query heads",
        cached="is_decoder",
        cross="is_decoder",
        cross_width="encoder_hidden_size",
    ),
    tensors=BERT_NAMES,
)
BLIP_2 = BLIP.relative(
    "blip-2",
    "instructblip",
    "instructblipvideo",
    config={"tied": text_word},
    uncounted="its Q-Former is not counted",
)
GIT = Architecture(types=("git",), attention=MHA_BIASED, tensors=BERT_NAMES, rotary="none")
GIT_VISION_MODEL = Architecture(
    types=("git_vision_model",), attention=ENCODER_HEADS, tensors=BART_NAMES
)

ARCHITECTURES = (BLIP, BLIP_TEXT_MODEL, BLIP_2, GIT, GIT_VISION_MODEL)
