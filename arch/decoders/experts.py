"""Decoders of experts that are kin to no other lineage: DBRX, Grok, JetMoE, Aria, Kolibri."""

from headcount.model.mixers import Attention
from headcount.model.spec import Layer

from ..architecture import MULTIMODAL, Architecture, Conversion
from ..attention.layer_kinds import full_every
from ..attention.layers import equal_layers, layer_count
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import Body, Layers
from ..body.feed_forward import Experts
from ..body.image_towers import IDEFICS3_TOWER, any_image
from ..body.projectors import linear
from ..body.shared import MLP_BIAS, ONE_SHARED, SAME_WIDTH
from ..body.towers import one_tower
from ..config_view import ConfigView
from ..tensors.names import TensorNames, separate, under


def aria_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Queries that attend to the patches, and an MLP."""
    hidden, out = tower.integer("hidden_size"), text.integer("hidden_size")
    counts = view.child("projector_patch_to_query_dict")
    saved = "max_value_projector_patch_to_query_dict"  # what transformers derives, and reads again
    queries = (
        max((counts.integer(patches) for patches in counts.config), default=256)
        if view.config.get(saved) is None
        else view.integer(saved)
    )
    inner = linear(hidden, 3 * hidden) + 2 * linear(hidden, hidden)
    outer = 3 * hidden * hidden  # q, k and v in front of the attention's own
    norms = 6 * hidden
    mlp = linear(hidden, out, bias=False) + linear(out, out, bias=False)
    return queries * hidden + inner + outer + norms + mlp


def dbrx_heads(view: ConfigView, heads: int) -> int:
    """`attn_config.kv_n_heads` (DBRX)."""
    return view.child("attn_config").optional("kv_n_heads") or heads


def bias_of_experts(view: ConfigView, layers: Layers) -> int:
    """A vector of the hidden size in each layer: the bias of JetMoE's experts."""
    return len(layers) * view.integer("hidden_size")


def mixture_of_attention_layers(shape: AttentionShape, view: ConfigView) -> tuple[Layer, ...]:
    """JetMoE: each token asks `num_experts_per_tok` experts, which have query and output
    projections of their own for as many heads as there are K/V heads (arXiv 2404.07413)."""
    hidden, kv, d = (
        view.integer(name) for name in ("hidden_size", "num_key_value_heads", "head_dim")
    )
    experts, chosen = view.integer("num_local_experts"), view.integer("num_experts_per_tok")
    mixer = Attention(
        hidden_size=hidden,
        window=view.optional("sliding_window"),
        num_attention_heads=kv * chosen,
        num_key_value_heads=kv,
        head_dim=d,
        v_head_dim=d,
        has_query_output=False,
        other_parameters=hidden + experts * hidden * (2 * kv * d + 1),
    )
    return equal_layers(mixer, layer_count(view))


DBRX_NAMES = TensorNames(modules=under("norm_attn_norm.attn", qkv="Wqkv", o="out_proj"))
GROK_NAMES = TensorNames(
    modules=separate("attn") | under("multi_head_attention", q="query", k="key", v="value")
)
JETMOE_NAMES = TensorNames(modules=under("self_attention", kv="kv_proj"), rest="other")

ARCHITECTURES = (
    Architecture(
        types=("dbrx",),
        attention=AttentionShape(
            fixed_head_dim=True,
            key_value_heads=dbrx_heads,
            key_value_keys=("attn_config.kv_n_heads",),
        ),
        body=Body(
            experts=Experts(
                count="moe_num_experts",
                per_token="moe_top_k",
                width="ffn_hidden_size",
                inside="ffn_config",
            ),
            named=True,
        ),
        tensors=DBRX_NAMES,
    ),
    Architecture(
        types=("grok-1",),
        body=Body(norms=4, experts=Experts(width="intermediate_size"), named=True),
        tensors=GROK_NAMES,
    ),
    Architecture(
        types=("jetmoe",),
        attention=AttentionShape(build=mixture_of_attention_layers),
        body=Body(experts=SAME_WIDTH, more=bias_of_experts),
        tensors=JETMOE_NAMES,
        conversion=Conversion(
            refused="it has as many query heads in each expert as K/V heads, so that fewer of one"
            " mean fewer of the other"
        ),
    ),
    MULTIMODAL.relative(
        "aria", body=one_tower(*any_image(IDEFICS3_TOWER), projector=aria_projector)
    ),
    Architecture(
        types=("aria_text",),
        attention=LLAMA_ATTENTION,
        body=Body(
            mlp=MLP_BIAS,
            experts=Experts(
                count="moe_num_experts",
                per_token="moe_topk",
                width="intermediate_size",
                shared="moe_num_shared_experts",
            ),
        ),
        rotary="halves",
        conversion=Conversion(width_checked=True),
    ),
    Architecture(
        types=("kolibri1",),
        attention=AttentionShape(kinds=full_every(5), norm="head"),
        body=Body(norms=4, experts=ONE_SHARED),
    ),
)
