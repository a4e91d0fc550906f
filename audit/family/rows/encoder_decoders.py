"""Encoder-decoders: two stacks, the second with cross-attention."""

from dataclasses import replace

from .. import two_stacks
from ..row import Family
from .patterns import BART, GEMMA2, GEMMA3, LLAMA, T5

PROPHETNET = {
    "encoder_attention_heads": ("num_encoder_attention_heads",),
    "decoder_attention_heads": ("num_decoder_attention_heads",),
    "encoder_layers": ("num_encoder_layers",),
    "decoder_layers": ("num_decoder_layers",),
}

ROWS: dict[str, Family] = {
    **dict.fromkeys(
        (
            *("blenderbot", "blenderbot-small", "fsmt", "m2m_100", "marian", "mbart", "mvp"),
            *("nllb-moe", "pegasus", "plbart", "speech_to_text", "seamless_m4t", "seamless_m4t_v2"),
            "speecht5",
        ),
        BART,
    ),
    "bigbird_pegasus": replace(BART, qkv_bias="use_bias", o_bias="use_bias"),
    "pegasus_x": replace(BART, qkv_bias=False, o_bias=False),
    "led": replace(BART, build=two_stacks.led),
    "longt5": replace(T5, build=two_stacks.longt5),
    "prophetnet": replace(BART, build=two_stacks.prophetnet, aliases=PROPHETNET),
    "switch_transformers": T5,
    "pop2piano": T5,
    "umt5": replace(T5, build=two_stacks.umt5),
    "udop": T5,
    "pix2struct_text_model": replace(T5, build=two_stacks.t5_decoder),
    "pp_formulanet_text": replace(BART, build=two_stacks.bart_decoder),
    "t5gemma": replace(GEMMA2, build=two_stacks.t5gemma),
    "t5gemma2": replace(GEMMA3, build=two_stacks.t5gemma2),
    "encoder-decoder": replace(LLAMA, build=two_stacks.two_models),
    **dict.fromkeys(
        ("speech-encoder-decoder", "vision-encoder-decoder"),
        replace(LLAMA, build=two_stacks.two_models),
    ),
}
