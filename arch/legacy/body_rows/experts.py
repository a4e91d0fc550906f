"""Decoders of experts."""

from dataclasses import replace

from ...body import feed_forward
from ...body.body import Body
from ...body.feed_forward import Experts, Mlp
from ...body.towers import TwoTowers
from .. import odd_bodies
from ..bodies import BIASED, DEEPSEEK, DEEPSEEK_EXPERTS, QWEN3_MOE, SAME_WIDTH

# The layers of `mlp_layer_types` hold experts, and where it is absent all but the first ones.
AFTER_DENSE = replace(DEEPSEEK_EXPERTS, layers=feed_forward.typed(feed_forward.after_dense))
AFTER_FIRST = replace(
    DEEPSEEK_EXPERTS, layers=feed_forward.typed(feed_forward.after("first_k_dense_replace", 1))
)
ONE_SHARED = Experts(shared=1, shared_width="shared_expert_intermediate_size")
GRANITE = replace(SAME_WIDTH, shared=1, shared_width="shared_intermediate_size")
LAGUNA = Body(
    experts=replace(
        AFTER_FIRST,
        count="num_experts",
        correction=True,
        shared=1,
        shared_width="shared_expert_intermediate_size",
    )
)

ROWS: dict[str, Body | TwoTowers] = {
    # As Qwen's
    **dict.fromkeys(("flex_olmo",), Body(experts=Experts(width="intermediate_size"))),
    "kolibri1": Body(norms=4, experts=ONE_SHARED),
    "lara_mini": Body(experts=ONE_SHARED),
    "mellum": Body(experts=Experts(layers=feed_forward.typed(feed_forward.after(0)))),
    "qwen3_omni_moe_text": QWEN3_MOE,
    "flint": Body(experts=replace(ONE_SHARED, layers=odd_bodies.flint_layers)),
    # As DeepSeek's
    **dict.fromkeys(
        ("dots1", "glm4v_moe_text", "sarvam_moe", "solar_open", "sarvam_mla", "mistral4"), DEEPSEEK
    ),
    **dict.fromkeys(("deepseek_v32", "glm_moe_dsa"), Body(experts=AFTER_DENSE)),
    "deepseek_ocr2_text": Body(mlp=BIASED, experts=AFTER_DENSE),
    "glm4_moe_lite": Body(experts=AFTER_FIRST),
    "axk1": Body(experts=AFTER_FIRST, extra=odd_bodies.norm_after_experts),
    "step3p5": Body(
        mlp=BIASED,
        experts=replace(
            AFTER_FIRST,
            layers=feed_forward.typed(odd_bodies.step_layers),
            shared=1,
            shared_width="share_expert_dim",
        ),
    ),
    "exaone_moe": Body(
        experts=replace(AFTER_DENSE, count="num_experts", shared="num_shared_experts")
    ),
    "hy_v3": Body(
        mlp=BIASED, experts=replace(AFTER_FIRST, count="num_experts", shared="num_shared_experts")
    ),
    "mimo_v2_flash": Body(experts=replace(AFTER_FIRST, shared=0)),
    "laguna": LAGUNA,
    "afmoe": Body(
        norms=4,
        experts=Experts(
            layers=feed_forward.after("num_dense_layers"),
            correction=True,
            shared="num_shared_experts",
        ),
    ),
    "beam": Body(norms=4, experts=Experts(layers=feed_forward.typed(feed_forward.after(3)))),
    "cohere2_moe": Body(
        norms=1,
        mlp=Mlp(width=odd_bodies.cohere_dense_width),
        experts=Experts(
            width="intermediate_size",
            layers=feed_forward.typed(feed_forward.after_dense),
            shared="num_shared_experts",
        ),
    ),
    # As Mixtral's, with an MLP for all tokens beside the experts
    **dict.fromkeys(("granitemoe_swa", "granitemoeshared"), Body(experts=GRANITE)),
    "aria_text": Body(
        mlp=BIASED,
        experts=Experts(
            count="moe_num_experts",
            per_token="moe_topk",
            width="intermediate_size",
            shared="moe_num_shared_experts",
        ),
    ),
    "jetmoe": Body(experts=SAME_WIDTH, extra=odd_bodies.one_norm),
    "ernie4_5_vl_moe_text": Body(
        mlp=Mlp(bias="use_bias"),
        experts=Experts(
            count="moe_num_experts",
            per_token="moe_k",
            layers=odd_bodies.ALL_BUT_FIRST,
            correction=True,
            shared="moe_num_shared_experts",
        ),
        extra=odd_bodies.image_experts,
        idle_extra=odd_bodies.idle_image_experts,
    ),
    "longcat_flash": Body(
        norms=2,
        mlp=Mlp(width="ffn_hidden_size"),
        extra=odd_bodies.longcat_experts,
        idle_extra=odd_bodies.longcat_idle,
    ),
    "diffusion_gemma_text": Body(
        norms=8,
        experts=Experts(per_token="top_k_experts", correction=True, beside_mlp=True),
    ),
}
