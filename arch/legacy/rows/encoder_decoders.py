"""Encoder-decoders: two stacks, the second with cross-attention."""

from dataclasses import replace

from ... import tying
from ...encoder_decoders import two_models
from .. import encoder_names, two_stacks
from ..row import Family
from .patterns import BART, GEMMA2, GEMMA3, LLAMA, T5

PROPHETNET = {
    "encoder_attention_heads": ("num_encoder_attention_heads",),
    "decoder_attention_heads": ("num_decoder_attention_heads",),
    "encoder_layers": ("num_encoder_layers",),
    "decoder_layers": ("num_decoder_layers",),
}

IN_DECODER = ("decoder.num_key_value_heads",)

ROWS: dict[str, Family] = {
    **dict.fromkeys(
        (
            *("blenderbot", "blenderbot-small", "m2m_100", "marian", "mbart", "mvp"),
            *("pegasus", "plbart", "speech_to_text"),
        ),
        BART,
    ),
    **dict.fromkeys(
        ("nllb-moe", "seamless_m4t", "seamless_m4t_v2"), replace(BART, names=encoder_names.NLLB_MOE)
    ),
    "speecht5": replace(BART, names=encoder_names.SPEECHT5),
    "fsmt": replace(BART, tied=tying.always),
    "bigbird_pegasus": replace(
        BART,
        names=encoder_names.BIGBIRD_PEGASUS,
        tied=tying.unless_alone,
        qkv_bias="use_bias",
        o_bias="use_bias",
    ),
    "pegasus_x": replace(BART, qkv_bias=False, o_bias=False),
    "led": replace(BART, names=encoder_names.LED, build=two_stacks.led),
    "longt5": replace(T5, names=encoder_names.LONGT5, build=two_stacks.longt5),
    "prophetnet": replace(
        BART, names=encoder_names.PROPHETNET, build=two_stacks.prophetnet, aliases=PROPHETNET
    ),
    "switch_transformers": replace(T5, tied=tying.own_word),
    "pop2piano": T5,
    "umt5": replace(T5, build=two_stacks.umt5),
    "udop": T5,
    "pix2struct_text_model": replace(
        T5, names=encoder_names.PIX2STRUCT, build=two_stacks.t5_decoder, tied=tying.own_word
    ),
    "pp_formulanet_text": replace(BART, build=two_stacks.bart_decoder),
    "t5gemma": replace(GEMMA2, build=two_stacks.t5gemma, key_value_keys=IN_DECODER),
    "t5gemma2": replace(GEMMA3, build=two_stacks.t5gemma2, key_value_keys=IN_DECODER),
    **dict.fromkeys(
        ("encoder-decoder", "speech-encoder-decoder", "vision-encoder-decoder"),
        replace(
            LLAMA,
            build=two_models.two_models,
            models=("encoder", "decoder"),
            tied=two_models.decoder_word,
        ),
    ),
}
