"""Hunyuan."""

from dataclasses import replace

from headcount.model.mixers import LatentAttention

from ..architecture import LATENT, Architecture, ConfigKeys
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, after, typed
from ..body.hyper_connections import hyper_connections
from ..body.shapes import AFTER_FIRST, DECODER, MLP_BIAS
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer
from ..states.hybrid import INDEXED
from ..states.indexed import checked_owners, deepseek
from ..states.kinds import all_of
from ..tensors.names import HYBRID_MLA, TensorNames, separate
from ..tying import either_word


def every_fourth_owns(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Hy-V4: layer 0, and every fourth from layer 1 on."""
    given = view.strings("indexer_types")
    if given is not None:
        return checked_owners(view, given, count)
    return tuple(i == 0 or (i - 1) % 4 == 0 for i in range(count))


def gate_and_sinks(view: ConfigView, mixer: LatentAttention) -> LatentAttention:
    """Hy-V4: a gate for every element of the output, and a sink per head."""
    heads = mixer.num_attention_heads
    return replace(mixer, other_parameters=mixer.hidden_size * heads * mixer.v_head_dim + heads)


HUNYUAN_TENSORS = TensorNames(
    modules=separate("self_attn")
    | {"self_attn.query_layernorm": "norm", "self_attn.key_layernorm": "norm"}
)
HUNYUAN_V1_DENSE = Architecture(
    types=("hunyuan_v1_dense",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias", norm="head"),
    body=Body(named=True),
    tensors=HUNYUAN_TENSORS,
)
HUNYUAN_V1_MOE = HUNYUAN_V1_DENSE.relative(
    "hunyuan_v1_moe",
    body={"experts": Experts(per_token="moe_topk", width="intermediate_size", shared=1)},
)
# Its code is published with its weights.
HUNYUAN = HUNYUAN_V1_MOE.relative(
    "hunyuan", config={"read_as": "hunyuan_v1_moe"}, attention={"norm_if": "use_qk_norm"}
)
HUNYUAN_VL = Architecture(
    types=("hunyuan_vl",), config=ConfigKeys(text="text_config", tied=either_word)
)
HUNYUAN_VL_TEXT = HUNYUAN_V1_DENSE.relative("hunyuan_vl_text", body=DECODER)
HY_V3 = HUNYUAN_V1_DENSE.relative(
    "hy_v3",
    body=Body(
        mlp=MLP_BIAS,
        experts=Experts(
            layers=typed(after("first_k_dense_replace", 1)), shared="num_shared_experts"
        ),
    ),
    tensors=None,
)
HY_V4 = Architecture(
    types=("hy_v4", "hy_v4_vl_text"),
    attention=AttentionShape(
        build=deepseek(gate_and_sinks, every_fourth_owns), kinds=all_of(INDEXED)
    ),
    body=Body(experts=AFTER_FIRST, extra=hyper_connections(mixing=False, head=True)),
    tensors=HYBRID_MLA,
    gguf=(Gguf(architecture="hy_v4", indexer=Indexer()),),
)
HY_V4_VL = Architecture(
    types=("hy_v4_vl",), config=ConfigKeys(text="text_config"), conversion=LATENT
)
ARCHITECTURES = (
    HUNYUAN,
    HUNYUAN_V1_DENSE,
    HUNYUAN_V1_MOE,
    HUNYUAN_VL,
    HUNYUAN_VL_TEXT,
    HY_V3,
    HY_V4,
    HY_V4_VL,
)
