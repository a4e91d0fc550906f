"""The table of bodies: what each `model_type` holds outside attention, one row each.

Exact against the models that transformers 5.24 builds; types marked as remote code have no class
there and follow the modelling file published with their weights.
"""

from collections.abc import Mapping
from dataclasses import replace

from ..body import feed_forward, shapes
from ..body.body import NO_NORM, WEIGHT_AND_BIAS, Body, Head, lm_head, no_head, one_per_mixer
from ..body.feed_forward import Experts, Mlp
from ..body.towers import TwoTowers
from . import extras

BIASED, PLAIN = shapes.MLP_BIAS, shapes.PLAIN
LLAMA, LLAMA_BIASED, SANDWICH = shapes.DECODER, shapes.DECODER_MLP_BIAS, shapes.SANDWICH
PHI, IMAGE = shapes.PARALLEL, shapes.IMAGE
SAME_WIDTH, MIXTRAL = shapes.SAME_WIDTH, shapes.MIXTRAL_BODY
DEEPSEEK_EXPERTS, DEEPSEEK = shapes.DEEPSEEK_EXPERTS, shapes.DEEPSEEK_BODY

# MLPs

# Decoders with RMSNorm and a gated MLP
ERNIE = Body(mlp=Mlp(bias="use_bias"))
GEMMA3N = Body(norms=8, extra=extras.gemma3n)
TEXT_ONLY = replace(LLAMA, default_class="TextModel")  # no class of its own with a head

# Experts
QWEN_EXPERTS = Experts(layers=feed_forward.sparse_steps)
QWEN3_MOE = Body(experts=QWEN_EXPERTS)
HUNYUAN = Body(experts=Experts(width="intermediate_size", per_token="moe_topk", shared=1))

# Decoders with LayerNorm and a plain MLP
GPT2 = Body(
    norm=WEIGHT_AND_BIAS,
    norms=one_per_mixer,
    positions=("max_position_embeddings",),
    mlp=Mlp(width="n_inner", times=4, gated=False, bias=True),
)
FOUR_TIMES = feed_forward.four_times_hidden

# Encoders and encoder-decoders
SEQ2SEQ_CLASSES: Mapping[str, Head | None] = {"ForConditionalGeneration": lm_head}
BART = Body(
    norm=WEIGHT_AND_BIAS,
    norms=one_per_mixer,
    mlp=Mlp(width="{stack}_ffn_dim", gated=False, bias=True),
    classes={**SEQ2SEQ_CLASSES, "BartModel": no_head},
    default_class="BartModel",  # what facebook/bart-* name
    final_norms=0,
    embedding_norms=2,
    positions=("max_position_embeddings",) * 2,
    position_offset=2,
    extra=extras.bart_copies,
)
WHISPER = replace(
    BART,
    classes={**SEQ2SEQ_CLASSES, "WhisperModel": no_head},
    default_class="ForConditionalGeneration",
    final_norms=2,
    embedding_norms=0,
    positions=("max_source_positions", "max_target_positions"),
    position_offset=0,
    extra=extras.whisper_frontend,
)
T5 = Body(
    norms=one_per_mixer,
    final_norms=2,
    mlp=Mlp(width="d_ff", gated=extras.t5_gated),
    classes={**SEQ2SEQ_CLASSES, "T5Model": no_head},
    default_class="ForConditionalGeneration",
)
BERT = Body(
    norm=WEIGHT_AND_BIAS,
    norms=one_per_mixer,
    final_norms=0,
    embedding_norms=1,
    positions=("max_position_embeddings",),
    token_types="type_vocab_size",
    mlp=PLAIN,
    classes=extras.BERT_CLASSES,
    default_class="ForMaskedLM",
)
VIT = replace(
    IMAGE, extra=extras.vit_embeddings, classes=extras.VIT_CLASSES, default_class="ViTModel"
)
CLIP = TwoTowers(
    bodies={
        "text": Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN, positions=("max_position_embeddings",)),
        "vision": replace(IMAGE, final_norms=2, extra=extras.clip_embeddings),
    },
    classes={"CLIPModel": no_head},
)

BODIES: dict[str, Body | TwoTowers] = {
    **dict.fromkeys(
        ("cohere", "cohere2"),
        Body(norms=1),  # LayerNorm without a bias, once before both halves
    ),
    **dict.fromkeys(
        ("llama", "granite", "smollm3", "seed_oss", "internlm3"),
        LLAMA_BIASED,
    ),
    **dict.fromkeys(
        ("exaone4", "gemma", "glm", "hunyuan_v1_dense", "ministral3", "mistral", "olmo2", "olmo3"),
        LLAMA,
    ),
    **dict.fromkeys(("phi3", "qwen2", "qwen3"), LLAMA),
    **dict.fromkeys(("qwen2_vl_text", "qwen2_5_vl_text", "qwen3_vl_text"), TEXT_ONLY),
    **dict.fromkeys(("gemma2", "gemma3_text", "glm4"), SANDWICH),
    "apertus": Body(mlp=Mlp(gated=False), extra=extras.apertus_activations),
    "ernie4_5": ERNIE,
    "nemotron": Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(gated=False, bias="mlp_bias")),
    "olmo": Body(norm=NO_NORM),
    "phi": PHI,
    "stablelm": Body(norm=WEIGHT_AND_BIAS, norms=extras.stablelm_norms),
    "starcoder2": Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(gated=False, bias="use_bias")),
    # Experts
    **dict.fromkeys(("mixtral", "granitemoe", "minimax_m2"), MIXTRAL),
    **dict.fromkeys(("deepseek_v3", "kimi_k2", "glm4_moe"), DEEPSEEK),
    "deepseek_v2": replace(DEEPSEEK, mlp=BIASED),
    "dbrx": Body(
        experts=Experts(
            count="moe_num_experts",
            per_token="moe_top_k",
            width="ffn_hidden_size",
            inside="ffn_config",
        )
    ),
    "ernie4_5_moe": replace(
        ERNIE,
        experts=Experts(
            layers=feed_forward.between, correction=True, shared="moe_num_shared_experts"
        ),
        head_bias="use_bias",
    ),
    "gpt_oss": Body(experts=replace(SAME_WIDTH, bias=True)),
    "hunyuan_v1_moe": HUNYUAN,
    "llama4_text": Body(
        mlp=Mlp(width=extras.llama4_width),
        experts=replace(SAME_WIDTH, layers=feed_forward.listed, shared=1),
    ),
    "olmoe": Body(experts=Experts(width="intermediate_size")),
    "phimoe": Body(norm=WEIGHT_AND_BIAS, experts=SAME_WIDTH, head_bias="lm_head_bias"),
    "qwen2_moe": Body(
        experts=replace(
            QWEN_EXPERTS,
            shared=1,
            shared_width="shared_expert_intermediate_size",
            shared_gate=True,
        )
    ),
    "qwen3_moe": QWEN3_MOE,
    "qwen3_vl_moe_text": replace(QWEN3_MOE, default_class="TextModel"),
    # LayerNorm and plain MLPs
    "bloom": replace(
        GPT2,
        positions=(),
        embedding_norms=1,
        mlp=Mlp(width=FOUR_TIMES, gated=False, bias=True),
    ),
    "falcon": Body(
        norm=WEIGHT_AND_BIAS,
        norms=extras.falcon_norms,
        mlp=Mlp(width="ffn_hidden_size", times=4, gated=False, bias="bias"),
    ),
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_neo": replace(GPT2, mlp=replace(GPT2.mlp, width="intermediate_size")),
    "gpt_neox": Body(norm=WEIGHT_AND_BIAS, mlp=PLAIN),
    "gptj": replace(PHI, mlp=GPT2.mlp),
    "mpt": Body(mlp=Mlp(width=FOUR_TIMES, gated=False)),
    "opt": Body(
        norm=WEIGHT_AND_BIAS,
        norm_if="layer_norm_elementwise_affine",
        final_norms=extras.opt_final_norms,
        embedding_width="word_embed_proj_dim",
        positions=("max_position_embeddings",),
        position_offset=2,
        mlp=Mlp(width="ffn_dim", gated=False, bias="enable_bias"),
    ),
    # Encoders and encoder-decoders
    "bart": BART,
    "bert": BERT,
    "clip": CLIP,
    "mt5": T5,
    "roberta": BERT,
    "t5": T5,
    "vit": VIT,
    "whisper": WHISPER,
    # Layers of several kinds
    "gemma3n_text": GEMMA3N,
    "gemma4_text": Body(
        norms=extras.gemma4_norms,
        mlp=Mlp(width=extras.gemma4_width),
        experts=Experts(
            per_token="top_k_experts",
            layers=feed_forward.if_flag("enable_moe_block"),
            correction=True,
            beside_mlp=True,
        ),
        extra=extras.per_layer_inputs,
    ),
    "mllama_text_model": Body(extra=extras.mllama_text),
    # Remote code
    **dict.fromkeys(("baichuan", "internlm2"), LLAMA),
    "chatglm": Body(
        mlp=Mlp(width="ffn_hidden_size", bias="add_bias_linear"),
        classes={"ForConditionalGeneration": lm_head, "ChatGLMModel": lm_head},
        default_class="ChatGLMModel",  # the files name it, and mean the model with its head
    ),
    "deepseek": Body(experts=replace(DEEPSEEK_EXPERTS, layers=feed_forward.after_dense_every)),
    "grok-1": Body(norms=4, experts=Experts(width="intermediate_size")),
    "hunyuan": HUNYUAN,
    "mimo": Body(extra=extras.mimo_prediction),
    "nemotron-nas": Body(
        norms=extras.deci_norms,
        mlp=Mlp(width=extras.deci_width),
        extra=extras.deci_linears,
    ),
    "phi3small": Body(norm=WEIGHT_AND_BIAS, mlp=Mlp(width="ff_intermediate_size", bias=True)),
    "qwen": Body(mlp=Mlp(width=extras.qwen_width, bias="!no_bias")),
}
