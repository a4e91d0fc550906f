"""GLM and ChatGLM."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..body.body import Body, lm_head
from ..body.feed_forward import Mlp, after, typed
from ..body.hyper_connections import hyper_connections
from ..body.shapes import AFTER_FIRST, DEEPSEEK_EXPERTS
from ..config_view import ConfigView
from ..states.hybrid import INDEXED, LINEAR
from ..states.indexed import deepseek, glm5_next, indexer_owners
from ..states.kinds import at
from ..tensors.names import HYBRID_MLA, TensorNames, under
from .deepseek import DEEPSEEK_V2, DEEPSEEK_V32


def chatglm_heads(view: ConfigView, heads: int) -> int:
    """`multi_query_group_num` K/V heads if `multi_query_attention` (ChatGLM2, GLM-4)."""
    if view.flag("multi_query_attention"):
        return view.integer("multi_query_group_num")
    return heads


CHATGLM_KEYS = {
    "num_hidden_layers": ("num_layers",),
    "head_dim": ("kv_channels",),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("seq_length",),
}


CHATGLM_TENSORS = TensorNames(
    modules=under("self_attention", qkv="query_key_value", o="dense"),
    parts_if="multi_query_attention",
)


GLM = Architecture(
    types=("glm",),
    attention=AttentionShape(qkv_bias="attention_bias"),
    body=Body(named=True),
    rotary="pairs",
)
GLM4 = GLM.relative("glm4", body={"norms": 4})
GLM4_MOE = GLM.relative(
    "glm4_moe",
    attention={"norm": "head", "norm_if": "use_qk_norm"},
    body={"experts": DEEPSEEK_EXPERTS},
    rotary="halves",
)
GLM4_MOE_LITE = DEEPSEEK_V2.relative("glm4_moe_lite", body=Body(experts=AFTER_FIRST))
GLM_MOE_DSA = DEEPSEEK_V32.relative(
    "glm_moe_dsa", attention={"build": deepseek(owners=indexer_owners)}
)
GLM5_NEXT = Architecture(types=("glm5_next",), config=ConfigKeys(text="text_config"))
GLM5_NEXT_TEXT = Architecture(
    types=("glm5_next_text",),
    attention=AttentionShape(build=glm5_next, kinds=at(3, 4, INDEXED, LINEAR)),
    body=Body(
        experts=replace(DEEPSEEK_EXPERTS, layers=typed(after(3))),
        extra=hyper_connections(mixing=True, head=False),
    ),
    tensors=HYBRID_MLA,
)
# Its code is published with its weights.
CHATGLM = Architecture(
    types=("chatglm",),
    config=ConfigKeys(aliases=CHATGLM_KEYS),
    attention=AttentionShape(
        qkv_bias="add_qkv_bias", o_bias="add_bias_linear", key_value_heads=chatglm_heads
    ),
    body=Body(
        mlp=Mlp(width="ffn_hidden_size", bias="add_bias_linear"),
        named=True,
        classes={"ForConditionalGeneration": lm_head, "ChatGLMModel": lm_head},
        default_class="ChatGLMModel",  # the files name it, and mean the model with its head
    ),
    tensors=CHATGLM_TENSORS,
)
GLMASR = GLM5_NEXT.relative("glmasr", config={"fills_text": True})
GLMASR_ENCODER = Architecture(
    types=("glmasr_encoder",),
    attention=AttentionShape(qkv_bias=True, k_bias=False, o_bias=True, cached=False),
)
GLM_IMAGE_TEXT = GLM.relative("glm_image_text", body=None, rotary=None)

ARCHITECTURES = (
    GLM,
    GLM4,
    GLM4_MOE,
    GLM4_MOE_LITE,
    GLM_MOE_DSA,
    GLM5_NEXT,
    GLM5_NEXT_TEXT,
    CHATGLM,
    GLMASR,
    GLMASR_ENCODER,
    GLM_IMAGE_TEXT,
)
