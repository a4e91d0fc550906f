"""Decoders of dense MLPs."""

from dataclasses import replace

from ...body import feed_forward
from ...body.body import NO_NORM, WEIGHT_AND_BIAS, Body, one_per_mixer
from ...body.feed_forward import Mlp
from ...body.towers import TwoTowers
from .. import odd_bodies
from ..bodies import BIASED, GPT2, LLAMA, LLAMA_BIASED, PHI, PLAIN, SANDWICH

UNGATED = Mlp(gated=False)
USE_BIAS = Mlp(bias="use_bias")

ROWS: dict[str, Body | TwoTowers] = {
    # RMSNorm and a gated MLP
    **dict.fromkeys(
        (
            *("emu3_text_model", "ministral", "qwen2_5_omni_text", "hunyuan_vl_text"),
            "diffllama",
        ),
        LLAMA,
    ),
    **dict.fromkeys(
        (
            *("cwm", "exaone", "granite4_vision_text", "granite_docling_text", "granite_swa"),
            *("helium", "iquestcoder", "minicpm3", "youtu"),
        ),
        LLAMA_BIASED,
    ),
    "cohere_compass_text": Body(norms=1),
    "paddleocr_vl_text": Body(mlp=USE_BIAS),
    "bitnet": Body(extra=odd_bodies.widths),
    "doge": Body(norms=4, mlp=BIASED, extra=odd_bodies.doge_experts),
    **dict.fromkeys(("glm4v_text", "glm_ocr_text"), SANDWICH),
    "hyperclovax": Body(norms=odd_bodies.hyperclovax_norms, mlp=BIASED),
    "gemma4_unified_text": SANDWICH,
    "muse_glimmer_text": SANDWICH,
    "vaultgemma": LLAMA,
    "voxtral_realtime_text": Body(extra=odd_bodies.time_conditions),
    "moshi": Body(mlp=Mlp(width=odd_bodies.no_width), extra=odd_bodies.half_gated),
    # RMSNorm and a plain MLP
    "apertus1p5_text": Body(mlp=UNGATED, extra=odd_bodies.always_xielu),
    "arcee": Body(mlp=Mlp(gated=False, bias="mlp_bias")),
    "cosmos3_edge_text": Body(mlp=Mlp(gated=False, bias="mlp_bias")),
    "nanochat": Body(norm=NO_NORM, mlp=UNGATED),
    # LayerNorm and a plain MLP
    "biogpt": Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        mlp=PLAIN,
        positions=("max_position_embeddings",),
        position_offset=2,
    ),
    "codegen": replace(PHI, mlp=GPT2.mlp),
    "ctrl": Body(
        norm=WEIGHT_AND_BIAS, mlp=Mlp(width="dff", gated=False, bias=True), head_bias=True
    ),
    "gpt-sw3": GPT2,
    "gpt_neox_japanese": Body(
        norm=WEIGHT_AND_BIAS, mlp=Mlp(width=odd_bodies.multiple_width, gated=False)
    ),
    "jais2": Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(gated=False, bias="mlp_bias")),
    "openai-gpt": replace(
        GPT2, final_norms=0, mlp=Mlp(width=feed_forward.four_times_hidden, gated=False, bias=True)
    ),
    "persimmon": Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN),
    "trocr": Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        final_norms=0,
        mlp=Mlp(width="decoder_ffn_dim", gated=False, bias=True),
        extra=odd_bodies.trocr_embeddings,
    ),
    "xglm": Body(
        norm=WEIGHT_AND_BIAS, norms=one_per_mixer, mlp=Mlp(width="ffn_dim", gated=False, bias=True)
    ),
}
