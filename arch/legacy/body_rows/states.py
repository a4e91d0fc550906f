"""Decoders whose mixers keep more than keys and values, or run several times."""

from dataclasses import replace

from ...body import feed_forward
from ...body.body import NO_NORM, WEIGHT_AND_BIAS, Body
from ...body.feed_forward import Experts, Mlp
from ...body.towers import TwoTowers
from .. import odd_bodies
from ..bodies import BIASED, LLAMA, LLAMA_BIASED, SAME_WIDTH
from .experts import AFTER_DENSE, AFTER_FIRST, GRANITE, ONE_SHARED

NO_MLP = Mlp(width=odd_bodies.no_width)
GATED_SHARED = replace(ONE_SHARED, shared_gate=True)
MAMBA = Body(norms=1, mlp=NO_MLP)
ZAMBA = replace(MAMBA, extra=odd_bodies.zamba_blocks)
HYPER = odd_bodies.hyper_connections(mixing=True, head=True)

ROWS: dict[str, Body | TwoTowers] = {
    # State-space models
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba"), MAMBA),
    **dict.fromkeys(("zamba", "zamba2"), ZAMBA),
    "olmo_hybrid": LLAMA,
    **dict.fromkeys(("bamba", "falcon_h1"), LLAMA_BIASED),
    "granitemoehybrid": Body(experts=GRANITE),
    "jamba": Body(
        experts=Experts(
            width="intermediate_size",
            layers=feed_forward.periodic("expert_layer_period", "expert_layer_offset"),
        )
    ),
    "nemotron_h": Body(
        norms=1,
        mlp=Mlp(width=odd_bodies.nemotron_width, gated=False, bias="mlp_bias"),
        experts=Experts(
            count="n_routed_experts",
            layers=odd_bodies.nemotron_layers,
            gated=False,
            inputs="moe_latent_size",
            shared=1,
            shared_width="moe_shared_expert_intermediate_size",
        ),
    ),
    # Linear attention
    "qwen3_5_text": LLAMA,
    "qwen3_5_moe_text": Body(experts=GATED_SHARED),
    "qwen3_next": Body(experts=replace(GATED_SHARED, layers=feed_forward.sparse_steps)),
    "kimi_linear": Body(experts=replace(AFTER_FIRST, count="num_experts")),
    "bailing_hybrid": Body(experts=replace(AFTER_DENSE, count="num_experts")),
    "minimax": Body(experts=SAME_WIDTH),
    "recurrent_gemma": Body(mlp=Mlp(width=odd_bodies.half_width, bias=True)),
    "rwkv": Body(norm=WEIGHT_AND_BIAS, mlp=NO_MLP, extra=odd_bodies.rwkv_channel_mix),
    "xlstm": Body(
        mlp=Mlp(width=odd_bodies.xlstm_width, bias="use_bias"), extra=odd_bodies.xlstm_biases
    ),
    # Short convolutions
    "lfm2": Body(mlp=Mlp(width=odd_bodies.lfm2_width)),
    "lfm2_moe": Body(experts=Experts(layers=feed_forward.after("num_dense_layers"))),
    "lfm3": Body(norms=odd_bodies.lfm3_norms),
    "zaya": Body(
        experts=Experts(width="moe_intermediate_size", router=False),
        extra=odd_bodies.zaya_routers,
        head_bias="lm_head_bias",
    ),
    "inkling_text": Body(
        experts=Experts(count="n_routed_experts", layers=odd_bodies.EVERY_OR_TYPED),
        extra=odd_bodies.inkling,
    ),
    # Sparse and compressed attention
    "deepseek_v4": Body(
        experts=replace(AFTER_DENSE, layers=feed_forward.after(0), shared=1), extra=HYPER
    ),
    "glm5_next_text": Body(
        experts=replace(AFTER_DENSE, layers=feed_forward.typed(feed_forward.after(3))),
        extra=odd_bodies.hyper_connections(mixing=True, head=False),
    ),
    **dict.fromkeys(
        ("hy_v4", "hy_v4_vl_text"),
        Body(experts=AFTER_FIRST, extra=odd_bodies.hyper_connections(mixing=False, head=True)),
    ),
    "axk2": Body(experts=AFTER_FIRST, extra=odd_bodies.gated_norms),
    "mistral_large4_text": Body(experts=AFTER_DENSE, extra=odd_bodies.rotary_scales),
    "minimax_m3_vl_text": Body(
        experts=replace(
            SAME_WIDTH,
            layers=feed_forward.typed(feed_forward.flagged("moe_layer_freq")),
            shared=1,
            shared_width="shared_intermediate_size",
        ),
        mlp=Mlp(width="dense_intermediate_size"),
    ),
    "unlimited_ocr_text": Body(
        mlp=BIASED,
        experts=replace(
            AFTER_FIRST, layers=feed_forward.typed(feed_forward.after("first_k_dense_replace", 1))
        ),
    ),
    # Formats of their own
    "xlnet": Body(
        norm=WEIGHT_AND_BIAS,
        final_norms=0,
        mlp=Mlp(width="d_inner", gated=False, bias=True),
        head_bias=True,
        extra=odd_bodies.xlnet_mask,
    ),
    "cpmant": Body(mlp=Mlp(width="dim_ff"), extra=odd_bodies.cpmant_embeddings),
    "hrm_text": Body(norm=NO_NORM, mlp=BIASED, extra=odd_bodies.hrm_start),
    "dory": Body(norm=NO_NORM, mlp=BIASED, head_bias=True, extra=odd_bodies.dory_scales),
}
