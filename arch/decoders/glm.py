"""GLM: ChatGLM, the decoders after it, and those of GLM-5 with latent attention."""

from dataclasses import replace

from headcount.model.mixers import State
from headcount.model.spec import Layer

from ..architecture import LATENT, MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.layers import latent_attention, layer_count
from ..attention.shape import AttentionShape
from ..body.body import Body, lm_head
from ..body.feed_forward import Mlp, after, typed
from ..body.hyper_connections import hyper_connections
from ..body.shared import DEEPSEEK_EXPERTS, EXPERTS_AFTER_FIRST
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer, Recurrence
from ..gguf.keys import Keys
from ..modules.names import DEEPSEEK_PREDICTION
from ..states.hybrid import INDEXED, LINEAR, hybrid_kinds
from ..states.indexed import add_indexer, indexed_latent_layers, indexer_owners
from ..states.kinds import every_nth_from
from ..states.linear import kimi_delta
from ..tensors.names import HYBRID_MLA_NAMES, TensorNames, under
from .deepseek import DEEPSEEK_V3, DEEPSEEK_V32


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


def glm5_next_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """GLM-5-Next: Kimi delta attention, and latent attention without positions whose indexer pools
    `index_kpool` keys. It keeps for each token the key, a gate of the same width and whether it is
    valid."""
    kinds = hybrid_kinds(shape.kinds, view, {INDEXED: INDEXED, FULL: INDEXED, LINEAR: LINEAR})
    owners = indexer_owners(view, layer_count(view))
    recurrent, bare = kimi_delta(shape, view, LINEAR), latent_attention(view)
    d, with_indexer = view.integer("index_head_dim"), add_indexer(view, bare)
    pooling = view.integer("index_kpool") * d + d * bare.hidden_size
    with_indexer = replace(
        with_indexer,
        other_parameters=with_indexer.other_parameters + pooling,
        states=(State(per_token=2 * d + 1),),
    )
    return tuple(
        Layer(index=i, mixers=recurrent if kind == LINEAR else (with_indexer if owns else bare,))
        for i, (kind, owns) in enumerate(zip(kinds, owners, strict=True))
    )


CHATGLM_NAMES = TensorNames(
    modules=under("self_attention", qkv="query_key_value", o="dense"),
    parts_if="multi_query_attention",
)

CHATGLM_KEYS = {
    "num_hidden_layers": ("num_layers",),
    "head_dim": ("kv_channels",),
    "vocab_size": ("padded_vocab_size",),
    "max_position_embeddings": ("seq_length",),
}

GLM = Architecture(
    types=("glm",),
    attention=AttentionShape(qkv_bias="attention_bias"),
    body=Body(named=True),
    rotary="pairs",
)

ARCHITECTURES = (
    GLM,
    GLM.relative("glm4", body={"norms": 4}),
    GLM.relative(
        "glm4_moe",
        attention={"norm": "head", "norm_if": "use_qk_norm"},
        body={"experts": DEEPSEEK_EXPERTS},
        rotary="halves",
        prediction=DEEPSEEK_PREDICTION,
    ),
    DEEPSEEK_V3.relative(
        "glm4_moe_lite",
        body=Body(experts=EXPERTS_AFTER_FIRST),
        prediction=DEEPSEEK_PREDICTION,
    ),
    DEEPSEEK_V32.relative(
        "glm_moe_dsa",
        attention={"build": indexed_latent_layers(owners=indexer_owners)},
        prediction=DEEPSEEK_PREDICTION,
        gguf=(Gguf(architecture="glm-dsa", indexer=Indexer(owners=indexer_owners_of_file)),),
    ),
    MULTIMODAL.relative("glm5_next", conversion=LATENT),
    Architecture(
        types=("glm5_next_text",),
        attention=AttentionShape(
            build=glm5_next_layers, kinds=every_nth_from(3, 4, INDEXED, LINEAR)
        ),
        body=Body(
            experts=replace(DEEPSEEK_EXPERTS, layers=typed(after(3))),
            more=hyper_connections(mixing=True, head=False),
        ),
        tensors=HYBRID_MLA_NAMES,
        gguf=(
            Gguf(
                architecture="glm5-next",
                recurrence=Recurrence(form="Kimi delta", layers="without heads"),
                indexer=Indexer(),
            ),
        ),
    ),
    # Its code is published with its weights.
    Architecture(
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
        tensors=CHATGLM_NAMES,
    ),
    MULTIMODAL.relative("glmasr", config={"fills_text": True}),
    Architecture(
        types=("glmasr_encoder",),
        attention=AttentionShape(qkv_bias=True, k_bias=False, o_bias=True, cached=False),
    ),
    Architecture(types=("glm_image_text",), attention=GLM.attention),
)
