"""Encoders."""

from dataclasses import replace

from ...body.body import Body, lm_head, no_head
from ...body.feed_forward import Mlp, four_times_hidden
from ...body.towers import TwoTowers
from .. import encoder_bodies as extras
from .. import sense_bodies, tower_bodies, tower_rows
from ..bodies import BERT, CLIP, GPT2, IMAGE
from ..extras import pooler

POOLED = replace(BERT, classes=extras.POOLED)
UNPOOLED = replace(BERT, classes=extras.UNPOOLED)
OTHER_EMBEDDINGS = replace(
    UNPOOLED, vocabulary=None, embedding_norms=0, positions=(), token_types=None
)
DEBERTA = replace(
    UNPOOLED,
    positions=(),
    token_types=None,
    extra=extras.deberta,
    classes={"ForMaskedLM": extras.deberta_head, "Model": no_head},
)
IMAGE_ENCODER = replace(IMAGE, classes={"Model": no_head}, default_class="Model")
PRE_NORMED = Body(
    embedding_norms=1,
    classes={"ForMaskedLM": extras.modernbert_head, "Model": no_head},
    default_class="ForMaskedLM",
)

SIGLIP_TEXT = replace(CLIP.bodies["text"], extra=tower_bodies.siglip_text)

ROWS: dict[str, Body | TwoTowers] = {
    # As BERT
    **dict.fromkeys(
        (
            *("camembert", "data2vec-text", "ibert", "longformer", "megatron-bert"),
            "xlm-roberta",
        ),
        POOLED,
    ),
    **dict.fromkeys(("roberta-prelayernorm",), replace(POOLED, final_norms=1)),
    "xlm-roberta-xl": replace(POOLED, final_norms=1, embedding_norms=0),
    "ernie": replace(POOLED, extra=extras.ernie),
    "splinter": UNPOOLED,
    "dpr": replace(
        UNPOOLED,
        extra=extras.dpr,
        classes={"Encoder": no_head},
        default_class="DPRQuestionEncoder",
    ),
    **dict.fromkeys(("mra", "nystromformer", "yoso"), replace(UNPOOLED, position_offset=2)),
    "big_bird": replace(UNPOOLED, extra=extras.always_pooled),
    "bert-generation": replace(
        UNPOOLED,
        token_types=None,
        classes={"Decoder": extras.biased_twice_head, "Encoder": no_head},
        default_class="BertGenerationDecoder",
    ),
    "distilbert": replace(
        UNPOOLED,
        token_types=None,
        mlp=Mlp(width="hidden_dim", gated=False, bias=True),
        classes={"ForMaskedLM": extras.one_bias_head, "Model": no_head},
    ),
    "mpnet": replace(POOLED, token_types=None, extra=extras.mpnet),
    "layoutlm": replace(UNPOOLED, extra=extras.layoutlm),
    "tapas": replace(POOLED, token_types=None, extra=extras.tapas),
    # Embeddings of a width of their own
    "electra": replace(
        OTHER_EMBEDDINGS,
        extra=extras.electra,
        classes={
            **extras.UNPOOLED,
            "ForMaskedLM": extras.electra_head,
            "ForCausalLM": extras.electra_head,
        },
    ),
    "albert": replace(
        OTHER_EMBEDDINGS,
        norms=2,
        extra=extras.albert,
        classes={"ForMaskedLM": extras.small_head, "Model": pooler},
    ),
    "rembert": replace(
        OTHER_EMBEDDINGS,
        extra=extras.rembert,
        classes={
            "ForMaskedLM": extras.rembert_head,
            "ForCausalLM": extras.rembert_head,
            "Model": pooler,
        },
    ),
    # Other norms and MLPs
    "deberta": DEBERTA,
    "deberta-v2": replace(DEBERTA, extra=extras.deberta_v2),
    "esm": replace(
        UNPOOLED,
        token_types=None,
        positions=(),
        embedding_norms=0,
        final_norms=1,
        extra=extras.esm,
        classes={"ForMaskedLM": extras.one_bias_head, "Model": pooler},
    ),
    "eurobert": replace(
        PRE_NORMED,
        embedding_norms=0,
        mlp=Mlp(bias="mlp_bias"),
        head_bias="mlp_bias",
        classes={"ForMaskedLM": lm_head, "Model": no_head},
    ),
    "ultrabert": replace(
        PRE_NORMED,
        embedding_norms=0,
        mlp=Mlp(bias="mlp_bias"),
        classes={"ForMaskedLM": extras.two_matrices_head, "Model": no_head},
    ),
    "gte": replace(
        UNPOOLED,
        positions=(),
        mlp=Mlp(),
        extra=extras.gte,
        classes={"ForMaskedLM": extras.one_bias_head, "Model": no_head},
    ),
    "jina_embeddings_v3": replace(POOLED, positions=()),
    "nomic_bert": replace(UNPOOLED, positions=(), mlp=Mlp()),
    "roformer": replace(
        OTHER_EMBEDDINGS,
        extra=extras.roformer,
        classes={
            "ForMaskedLM": extras.small_head,
            "ForCausalLM": extras.small_head,
            "Model": no_head,
        },
    ),
    "modernbert": replace(
        PRE_NORMED,
        norms=extras.modernbert_norms,
        mlp=Mlp(bias="mlp_bias"),
        extra=extras.norm_biases,
    ),
    "modernbert-decoder": replace(
        PRE_NORMED,
        norms=extras.modernbert_norms,
        mlp=Mlp(bias="mlp_bias"),
        extra=extras.norm_biases,
        classes={"ForCausalLM": extras.modernbert_head, "Model": no_head},
        default_class="ForCausalLM",
    ),
    "esmc": replace(
        PRE_NORMED,
        embedding_norms=0,
        mlp=Mlp(bias="mlp_bias"),
        extra=extras.esmc,
        classes={"ForMaskedLM": extras.one_bias_head, "Model": no_head},
    ),
    **dict.fromkeys(
        ("flaubert", "xlm"),
        replace(
            GPT2,
            embedding_norms=1,
            final_norms=0,
            mlp=Mlp(width=four_times_hidden, gated=False, bias=True),
            extra=extras.languages,
            head_bias=True,
        ),
    ),
    # Two towers
    "siglip": replace(
        tower_rows.TWO_SIGLIPS, bodies={"text": SIGLIP_TEXT, "vision": tower_rows.SIGLIP.body}
    ),
    "siglip2": replace(
        tower_rows.TWO_SIGLIPS,
        bodies={"text": SIGLIP_TEXT, "vision": tower_rows.SIGLIP2.body},
        classes={"Siglip2Model": no_head},
    ),
    "clipseg": TwoTowers(bodies=CLIP.bodies, classes={"CLIPSegModel": no_head}),
    "chinese_clip": TwoTowers(
        bodies={"text": BERT, "vision": CLIP.bodies["vision"]},
        classes={"ChineseCLIPModel": no_head},
    ),
    # Images and sound
    **dict.fromkeys(
        ("wav2vec2", "hubert", "unispeech", "unispeech-sat"),
        replace(IMAGE_ENCODER, extra=sense_bodies.wav2vec2),
    ),
    "data2vec-audio": replace(IMAGE_ENCODER, extra=sense_bodies.data2vec_audio),
    "audio-spectrogram-transformer": replace(IMAGE_ENCODER, extra=sense_bodies.spectrogram),
    "beit": replace(IMAGE_ENCODER, extra=sense_bodies.beit),
    "data2vec-vision": replace(
        IMAGE_ENCODER, final_norms=sense_bodies.data2vec_norms, extra=sense_bodies.beit
    ),
    "deit": replace(IMAGE_ENCODER, extra=sense_bodies.deit, classes={"Model": pooler}),
    **dict.fromkeys(
        ("dinov2", "dinov2_with_registers"),
        replace(IMAGE_ENCODER, mlp=Mlp(width=lambda view, layer: 0), extra=sense_bodies.dino),
    ),
    "ijepa": replace(IMAGE_ENCODER, extra=sense_bodies.ijepa),
    **dict.fromkeys(("vit_msn", "vit_mae"), replace(IMAGE_ENCODER, extra=sense_bodies.vit_msn)),
    "vivit": replace(IMAGE_ENCODER, extra=sense_bodies.vivit, classes={"Model": pooler}),
    "yolos": replace(IMAGE_ENCODER, extra=sense_bodies.yolos, classes={"Model": pooler}),
}
