"""Hunyuan: q/k norms under names of their own; Hy-V4 has latent attention and an indexer."""

from dataclasses import replace

from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.spec import Layer

from ..architecture import LATENT, MULTIMODAL, Architecture
from ..attention.layers import decoder_layers
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body
from ..body.feed_forward import Experts, after_first_dense
from ..body.hyper_connections import hyper_connections
from ..body.shared import DECODER, EXPERTS_AFTER_FIRST, MLP_BIAS
from ..config_view import ConfigView
from ..gguf.form import Gguf, Indexer
from ..states.hybrid import INDEXED
from ..states.indexed import indexed_latent_layers, owners_by_words
from ..states.kinds import all_of
from ..tensors.names import HYBRID_MLA_NAMES, TensorNames, separate
from ..tying import either_says


def every_fourth_owns(view: ConfigView, count: int) -> tuple[bool, ...]:
    """Hy-V4: layer 0, and every fourth from layer 1 on."""
    given = view.strings("indexer_types")
    if given is not None:
        return owners_by_words(view, given, count)
    return tuple(i == 0 or (i - 1) % 4 == 0 for i in range(count))


def with_gate_and_sinks(view: ConfigView, mixer: LatentAttention) -> LatentAttention:
    """Hy-V4: a gate for every element of the output, and a sink per head."""
    heads = mixer.num_attention_heads
    return replace(mixer, other_parameters=mixer.hidden_size * heads * mixer.v_head_dim + heads)


def with_shared_keys(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """CLA: all layers but every `cla_share_factor`-th take keys and values from the last of those,
    and have no projections for them. Each layer still stores them in the cache, and norms keys.

    Source: HunYuanAttention of modeling_hunyuan.py, published with Hunyuan-Large's weights."""
    layers = decoder_layers(shape, view)
    if not view.flag("use_cla"):
        return layers
    share = view.optional("cla_share_factor") or 1
    return tuple(
        layer if layer.index % share == 0 else replace(layer, mixers=_without_own(layer))
        for layer in layers
    )


def _without_own(layer: Layer) -> tuple[Mixer, ...]:
    return tuple(
        replace(mixer, has_key=False, has_value=False) if isinstance(mixer, Attention) else mixer
        for mixer in layer.mixers
    )


HUNYUAN_NAMES = TensorNames(
    modules=separate("self_attn")
    | {"self_attn.query_layernorm": "norm", "self_attn.key_layernorm": "norm"}
)

HUNYUAN_V1_DENSE = Architecture(
    types=("hunyuan_v1_dense",),
    attention=replace(LLAMA_ATTENTION, norm="head"),
    body=Body(named=True),
    tensors=HUNYUAN_NAMES,
)
HUNYUAN_V1_MOE = HUNYUAN_V1_DENSE.relative(
    "hunyuan_v1_moe",
    body={"experts": Experts(per_token="moe_topk", width="intermediate_size", shared=1)},
)

ARCHITECTURES = (
    HUNYUAN_V1_DENSE,
    HUNYUAN_V1_MOE,
    # Its code is published with its weights.
    HUNYUAN_V1_MOE.relative(
        "hunyuan",
        config={"read_as": "hunyuan_v1_moe"},
        attention={"build": with_shared_keys, "norm_if": "use_qk_norm"},
    ),
    MULTIMODAL.relative("hunyuan_vl", config={"tied": either_says}),
    HUNYUAN_V1_DENSE.relative("hunyuan_vl_text", body=DECODER),
    HUNYUAN_V1_DENSE.relative(
        "hy_v3",
        body=Body(
            mlp=MLP_BIAS, experts=Experts(layers=after_first_dense, shared="num_shared_experts")
        ),
        tensors=None,
    ),
    Architecture(
        types=("hy_v4", "hy_v4_vl_text"),
        attention=AttentionShape(
            build=indexed_latent_layers(with_gate_and_sinks, every_fourth_owns),
            kinds=all_of(INDEXED),
        ),
        body=Body(experts=EXPERTS_AFTER_FIRST, more=hyper_connections(mixing=False, head=True)),
        tensors=HYBRID_MLA_NAMES,
        gguf=(Gguf(architecture="hy_v4", indexer=Indexer()),),
    ),
    MULTIMODAL.relative("hy_v4_vl", conversion=LATENT),
)
