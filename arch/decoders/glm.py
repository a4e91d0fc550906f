"""GLM and ChatGLM."""

from dataclasses import replace

from headcount.model.mixers import State
from headcount.model.spec import Layer

from ..architecture import LATENT, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.layers import latent_attention, layer_count
from ..attention.shape import AttentionShape
from ..body.body import Body, lm_head
from ..body.feed_forward import Mlp, after, typed
from ..body.hyper_connections import hyper_connections
from ..body.shapes import AFTER_FIRST, DEEPSEEK_EXPERTS
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer, Recurrence
from ..gguf.keys import Keys
from ..states.hybrid import INDEXED, LINEAR, hybrid_kinds
from ..states.indexed import deepseek, indexed, indexer_owners
from ..states.kinds import at
from ..states.linear import kimi_delta
from ..tensors.names import HYBRID_MLA, TensorNames, under
from .deepseek import DEEPSEEK_V2, DEEPSEEK_V32


def chatglm_heads(view: ConfigView, heads: int) -> int:
    """`multi_query_group_num` K/V heads if `multi_query_attention` (ChatGLM2, GLM-4)."""
    if view.flag("multi_query_attention"):
        return view.integer("multi_query_group_num")
    return heads


def indexer_owners_of_file(keys: Keys, count: int) -> list[bool]:
    """GLM-5.2 has indexers in every fourth layer, before that was a key of GGUF files."""
    if keys.number("context_length") < 2**20:
        return [True] * count
    return [i < 2 or (i - 2) % 4 == 0 for i in range(count)]


def glm5_next(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """GLM-5-Next: Kimi delta attention, and latent attention without positions whose indexer pools
    `index_kpool` keys. It keeps for each token the key, a gate of the same width and whether it is
    valid."""
    kinds = hybrid_kinds(shape.kinds, view, {INDEXED: INDEXED, FULL: INDEXED, LINEAR: LINEAR})
    owners = indexer_owners(view, layer_count(view))
    recurrent, bare = kimi_delta(shape, view, LINEAR), latent_attention(view)
    d, with_indexer = view.integer("index_head_dim"), indexed(view, bare)
    pooling = view.integer("index_kpool") * d + d * bare.hidden_size
    with_indexer = replace(
        with_indexer,
        other_parameters=with_indexer.other_parameters + pooling,
        states=(State(per_token=2 * d + 1),),
    )
    return tuple(
        Layer(
            index=i,
            mixers=recurrent if kind == LINEAR else (with_indexer if owns else bare,),
        )
        for i, (kind, owns) in enumerate(zip(kinds, owners, strict=True))
    )


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
    "glm_moe_dsa",
    attention={"build": deepseek(owners=indexer_owners)},
    gguf=(Gguf(architecture="glm-dsa", indexer=Indexer(owners=indexer_owners_of_file)),),
)
GLM5_NEXT = Architecture(
    types=("glm5_next",), config=ConfigKeys(text="text_config"), conversion=LATENT
)
GLM5_NEXT_TEXT = Architecture(
    types=("glm5_next_text",),
    attention=AttentionShape(build=glm5_next, kinds=at(3, 4, INDEXED, LINEAR)),
    body=Body(
        experts=replace(DEEPSEEK_EXPERTS, layers=typed(after(3))),
        extra=hyper_connections(mixing=True, head=False),
    ),
    tensors=HYBRID_MLA,
    gguf=(
        Gguf(
            architecture="glm5-next",
            recurrence=Recurrence(form="Kimi delta", layers="without heads"),
            indexer=Indexer(),
        ),
    ),
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
GLMASR = Architecture(types=("glmasr",), config=ConfigKeys(text="text_config", fills_text=True))
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
