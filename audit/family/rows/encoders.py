"""Encoders, and decoders made of encoder layers (`is_decoder`)."""

from dataclasses import replace

from .. import kinds, layers, names, odd, odd_encoders, uneven
from .. import own_parameters as extras
from ..row import Family
from .patterns import ALL_BIASED, BERT, LLAMA, NO_BIAS, VIT

PLAIN_BERT = replace(BERT, cached=False, cross=False)
XLM = replace(ALL_BIASED, names=names.XLM, cached=False, stack="decoder")
SIGLIP = replace(ALL_BIASED, names=names.BART, build=odd.two_towers)

WAV2VEC2 = replace(ALL_BIASED, names=names.BART, cached=False)
NARROW = replace(PLAIN_BERT, names=names.UNKNOWN)
BEIT = replace(VIT, qkv_bias=True, k_bias=False)
GTE = Family(qkv_bias=True, o_bias=True, cached=False, key_value_heads=layers.as_query_heads)

ROWS: dict[str, Family] = {
    **dict.fromkeys(
        (
            *("bert-generation", "big_bird", "camembert", "data2vec-text", "electra", "ernie"),
            *("esm", "megatron-bert", "rembert", "roberta-prelayernorm", "roc_bert", "roformer"),
            *("xlm-roberta", "xlm-roberta-xl", "xmod"),
        ),
        BERT,
    ),
    **dict.fromkeys(
        ("ibert", "layoutlm", "layoutlmv3", "mpnet", "mra", "tapas", "yoso"), PLAIN_BERT
    ),
    "albert": replace(PLAIN_BERT, build=uneven.shared_groups),
    "big_bird": replace(BERT, qkv_bias="use_bias"),
    "deberta": replace(PLAIN_BERT, names=names.DEBERTA, k_bias=False, other=extras.deberta),
    "deberta-v2": replace(PLAIN_BERT, names=names.DEBERTA_V2, other=extras.deberta_v2),
    "distilbert": replace(PLAIN_BERT, names=names.DISTILBERT),
    "esmc": replace(LLAMA, cached=False, norm="q_and_k"),
    "eurobert": replace(LLAMA, cached=False),
    "flaubert": XLM,
    "gte": GTE,
    "jina_embeddings_v3": GTE,
    "longformer": replace(PLAIN_BERT, other=extras.second_query_key_value),
    "luke": replace(PLAIN_BERT, other=extras.luke_queries),
    "modernbert": replace(
        LLAMA,
        names=names.MODERNBERT,
        cached=False,
        fixed_head_dim=True,
        key_value_heads=layers.as_query_heads,
        kinds=kinds.full_first(3, "global_attn_every_n_layers"),
        window=uneven.half_of_local_attention,
    ),
    "nomic_bert": replace(NO_BIAS, cached=False, key_value_heads=layers.as_query_heads),
    "nystromformer": replace(PLAIN_BERT, other=extras.nystrom_convolution),
    # Attention of other widths than the model's, or none; their headers are not sorted to parts
    "convbert": replace(NARROW, fixed_head_dim=False, build=odd_encoders.convbert),
    "fnet": Family(names=names.UNKNOWN, build=odd_encoders.no_attention, cached=False),
    "funnel": replace(NARROW, build=odd_encoders.funnel),
    "mobilebert": replace(NARROW, build=odd_encoders.mobilebert),
    "neomme": replace(
        LLAMA,
        names=names.HYBRID,
        cached=False,
        kinds=kinds.every(6, last_full=True),
        other=extras.output_gate_and_head_bias,
    ),
    "perceiver": replace(NARROW, build=odd_encoders.perceiver),
    "squeezebert": replace(NARROW, build=odd_encoders.squeezebert),
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
    **dict.fromkeys(("chinese_clip", "clipseg", "siglip", "siglip2"), SIGLIP),
}
