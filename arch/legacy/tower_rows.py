"""The table of towers: encoders of images and sound inside multimodal models."""

from dataclasses import replace

from ..attention import layers
from ..attention.shape import AttentionShape
from ..body.body import Body, no_head
from ..body.feed_forward import Mlp
from ..body.image_towers import (
    ANY_IMAGE as ANY_IMAGE,
)
from ..body.image_towers import (
    CLIP as CLIP,
)
from ..body.image_towers import (
    DINOV2 as DINOV2,
)
from ..body.image_towers import (
    IDEFICS3 as IDEFICS3,
)
from ..body.image_towers import (
    INTERN as INTERN,
)
from ..body.image_towers import (
    PIXTRAL as PIXTRAL,
)
from ..body.image_towers import (
    SIGLIP as SIGLIP,
)
from ..body.image_towers import (
    SIGLIP2 as SIGLIP2,
)
from ..body.image_towers import (
    SMOL as SMOL,
)
from ..body.towers import BIASED_HEADS, PLAIN_HEADS, Tower, TwoTowers
from ..body.towers import DEPTH_KEYS as QWEN_DEPTH
from ..decoders.ernie import (
    PADDLE as PADDLE,
)
from ..decoders.kimi import (
    MOONVIT as MOONVIT,
)
from . import extras, projectors, tower_bodies
from .bodies import IMAGE, PLAIN

IDEFICS2 = replace(SMOL, model_type="idefics2_vision")
QIANFAN = replace(INTERN, model_type="qianfan_ocr_vision")
QWEN2_VL = Tower(
    body=replace(
        IMAGE,
        final_norms=0,
        mlp=replace(PLAIN, width=extras.ratio_width),
        extra=projectors.qwen2_vl_patches,
    ),
    attention=BIASED_HEADS,
    model_type="qwen2_vl_vision",
    names={**QWEN_DEPTH, "output_size": "hidden_size", "hidden_size": "embed_dim"},
)
QWEN2_5_VL = Tower(
    body=Body(
        final_norms=0,
        vocabulary=None,
        mlp=Mlp(bias=True),
        extra=projectors.qwen2_vl_patches,
    ),
    attention=BIASED_HEADS,
    model_type="qwen2_5_vl_vision",
    names=QWEN_DEPTH,
)
QWEN3_VL = Tower(
    body=replace(IMAGE, final_norms=0, extra=projectors.qwen3_vl_patches),
    attention=BIASED_HEADS,
    model_type="qwen3_vl_vision",
    names=QWEN_DEPTH,
)
QWEN3_VL_MOE = replace(QWEN3_VL, model_type="qwen3_vl_moe_vision")
QWEN3_5 = replace(QWEN3_VL, model_type="qwen3_5_vision")
QWEN3_5_MOE = replace(QWEN3_VL, model_type="qwen3_5_moe_vision")
LLAMA4 = Tower(
    body=replace(IMAGE, final_norms=2, extra=projectors.llama4_vision),
    attention=BIASED_HEADS,
    model_type="llama4_vision_model",
)
MLLAMA = Tower(
    body=replace(IMAGE, final_norms=2, extra=projectors.mllama_vision),
    attention=replace(PLAIN_HEADS, build=projectors.mllama_layers),
    model_type="mllama_vision_model",
    names={"num_attention_heads": "attention_heads"},
)
GEMMA4 = Tower(
    body=Body(norms=4, final_norms=0, vocabulary=None, extra=projectors.gemma4_vision),
    attention=AttentionShape(build=layers.encoder, norm="head"),
    model_type="gemma4_vision",
)
# Sound
QWEN2_AUDIO = Tower(
    body=replace(
        IMAGE,
        mlp=Mlp(width="encoder_ffn_dim", gated=False, bias=True),
        extra=tower_bodies.whisper_encoder,
    ),
    attention=replace(BIASED_HEADS, k_bias=False),
    model_type="qwen2_audio_encoder",
    names={"num_hidden_layers": "encoder_layers", "num_attention_heads": "encoder_attention_heads"},
)
VOXTRAL = replace(
    QWEN2_AUDIO,
    body=replace(QWEN2_AUDIO.body, mlp=PLAIN),
    model_type="voxtral_encoder",
    names={},
)
QWEN2_5_OMNI = replace(QWEN2_5_VL, model_type="qwen2_5_omni_vision_encoder")
QWEN2_5_OMNI_AUDIO = replace(
    QWEN2_AUDIO,
    body=replace(QWEN2_AUDIO.body, extra=tower_bodies.omni_encoder),
    model_type="qwen2_5_omni_audio_encoder",
)
AUDIO_FLAMINGO = replace(VOXTRAL, model_type="audioflamingo3_encoder")

GEMMA4_AUDIO = Tower(model_type="gemma4_audio", whole=tower_bodies.gemma4_audio)


TWO_SIGLIPS = TwoTowers(bodies={}, classes={"SiglipModel": no_head}, constants=2, projection=None)
