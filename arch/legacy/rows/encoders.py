"""Encoders, and decoders made of encoder layers (`is_decoder`)."""

from dataclasses import replace

from ... import tying
from ...attention import layer_kinds as kinds
from ...attention import shape
from ...tensors import names
from .. import encoder_names, odd, odd_encoders, uneven
from .. import own_parameters as extras
from ..row import Family
from .patterns import ALL_BIASED, BERT, LLAMA, NO_BIAS, VIT

PLAIN_BERT = replace(BERT, cached=False, cross=False)
XLM = replace(ALL_BIASED, names=encoder_names.XLM, cached=False, stack="decoder")
SIGLIP = replace(ALL_BIASED, names=names.BART, build=odd.two_towers)

WAV2VEC2 = replace(ALL_BIASED, names=encoder_names.WAV2VEC2, cached=False)
NARROW = replace(PLAIN_BERT, names=names.UNKNOWN)  # headers are not sorted to parts
BEIT = replace(VIT, qkv_bias=True, k_bias=False)
GTE = Family(
    names=encoder_names.GTE,
    qkv_bias=True,
    o_bias=True,
    cached=False,
    key_value_heads=shape.as_query_heads,
)

ROWS: dict[str, Family] = {
    **dict.fromkeys(
        (
            *("bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"),
            *("esm", "megatron-bert", "roberta-prelayernorm", "roc_bert", "roformer"),
            *("xlm-roberta", "xlm-roberta-xl", "xmod"),
        ),
        BERT,
    ),
    **dict.fromkeys(("ibert", "layoutlm", "layoutlmv3", "mra", "tapas", "yoso"), PLAIN_BERT),
    "albert": replace(PLAIN_BERT, names=encoder_names.ALBERT, build=uneven.shared_groups),
    "big_bird": replace(BERT, qkv_bias="use_bias"),
    **dict.fromkeys(
        ("megatron-bert", "roberta-prelayernorm"),
        replace(BERT, names=encoder_names.BERT_NORM_FIRST),
    ),
    "deberta": replace(PLAIN_BERT, names=encoder_names.DEBERTA, k_bias=False, other=extras.deberta),
    "deberta-v2": replace(PLAIN_BERT, names=encoder_names.DEBERTA_V2, other=extras.deberta_v2),
    "distilbert": replace(PLAIN_BERT, names=encoder_names.DISTILBERT),
    "esmc": replace(LLAMA, tied=tying.never, cached=False, norm="q_and_k"),
    "eurobert": replace(LLAMA, cached=False),
    "flaubert": XLM,
    "gte": GTE,
    "jina_embeddings_v3": replace(GTE, names=names.MIXER),
    "longformer": replace(
        PLAIN_BERT, names=encoder_names.BERT_AND_MORE, other=extras.second_query_key_value
    ),
    "rembert": replace(BERT, tied=tying.never),
    "luke": replace(
        PLAIN_BERT, tied=tying.never, names=encoder_names.BERT_AND_MORE, other=extras.luke_queries
    ),
    "modernbert": replace(
        LLAMA,
        names=encoder_names.MODERNBERT,
        cached=False,
        fixed_head_dim=True,
        key_value_heads=shape.as_query_heads,
        kinds=kinds.full_first(3, "global_attn_every_n_layers"),
        window=uneven.half_of_local_attention,
    ),
    "mpnet": replace(PLAIN_BERT, names=encoder_names.MPNET),
    "nomic_bert": replace(
        NO_BIAS,
        names=names.MPT,
        key_value_heads=shape.as_query_heads,
        cached=False,
        defaults={"tie_word_embeddings": True},
    ),
    "nystromformer": replace(
        PLAIN_BERT, names=encoder_names.BERT_AND_MORE, other=extras.nystrom_convolution
    ),
    # Attention of other widths than the model's, or none
    "convbert": replace(
        NARROW,
        names=encoder_names.BERT_AND_MORE,
        fixed_head_dim=False,
        build=odd_encoders.convbert,
    ),
    "fnet": Family(names=names.UNKNOWN, build=odd_encoders.no_attention, cached=False),
    "funnel": replace(NARROW, build=odd_encoders.funnel),
    "mobilebert": replace(PLAIN_BERT, build=odd_encoders.mobilebert),
    "neomme": replace(
        LLAMA,
        names=encoder_names.NEOMME,
        cached=False,
        kinds=kinds.every(6, last_full=True),
        other=extras.output_gate_and_head_bias,
    ),
    "perceiver": replace(NARROW, build=odd_encoders.perceiver),
    "squeezebert": replace(NARROW, names=encoder_names.SQUEEZEBERT, build=odd_encoders.squeezebert),
    "ultrabert": replace(LLAMA, cached=False, kinds=kinds.every(3)),
    "xlm": XLM,
    # Vision and audio
    **dict.fromkeys(
        (
            *("audio-spectrogram-transformer", "deit", "dinov2", "dinov2_with_registers"),
            *("vit_mae", "vit_msn"),
        ),
        VIT,
    ),
    **dict.fromkeys(("ijepa", "vivit"), VIT),
    "yolos": replace(VIT, fixed_head_dim=True),
    **dict.fromkeys(
        ("data2vec-audio", "hubert", "unispeech", "unispeech-sat", "wav2vec2"), WAV2VEC2
    ),
    "beit": BEIT,
    "data2vec-vision": replace(BEIT, fixed_head_dim=True),
    **dict.fromkeys(("dpr", "markuplm", "splinter", "visual_bert"), PLAIN_BERT),
    **dict.fromkeys(("clipseg", "siglip", "siglip2"), SIGLIP),
    "chinese_clip": replace(SIGLIP, names=encoder_names.CHINESE_CLIP),
}
