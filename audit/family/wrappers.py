"""The table of multimodal models whose tower is counted; one without a row here has no total."""

from dataclasses import replace

from . import extras, layers, projectors
from .bodies import IMAGE, PLAIN
from .body import Body
from .feed_forward import Mlp
from .row import Family
from .towers import Tower, Wrapper

# Attention of towers
PLAIN_HEADS = Family(
    build=layers.encoder, fixed_head_dim=True, key_value_heads=layers.as_query_heads
)
BIASED_HEADS = replace(PLAIN_HEADS, qkv_bias=True, o_bias=True)
QWEN_DEPTH = {"num_hidden_layers": "depth", "num_attention_heads": "num_heads"}
QWEN3_TOWER = Tower(
    body=replace(IMAGE, final_norms=0, extra=projectors.qwen3_vl_patches),
    family=BIASED_HEADS,
    model_type="qwen3_vl_vision",
    names=QWEN_DEPTH,
)

# Language models with a tower for images. Their text_config is a row above.
WRAPPERS: dict[str, Wrapper] = {
    "gemma3": Wrapper(
        tower=Tower(
            body=replace(IMAGE, extra=projectors.siglip),
            family=BIASED_HEADS,
            model_type="siglip_vision_model",
        ),
        projector=projectors.gemma3,
    ),
    "gemma4": Wrapper(
        tower=Tower(
            body=Body(norms=4, final_norms=0, vocabulary=None, extra=projectors.gemma4_vision),
            family=Family(build=layers.encoder, norm="head"),
            model_type="gemma4_vision",
        ),
        projector=projectors.gemma4,
        unless=("audio_config",),
    ),
    "kimi_k25": Wrapper(
        tower=Tower(
            body=replace(IMAGE, extra=projectors.moonvit),
            family=BIASED_HEADS,
            model_type="kimi_k25_vision",
        ),
        projector=projectors.kimi_k25,
    ),
    "llama4": Wrapper(
        tower=Tower(
            body=replace(IMAGE, final_norms=2, extra=projectors.llama4_vision),
            family=BIASED_HEADS,
            model_type="llama4_vision_model",
        ),
        projector=projectors.llama4,
    ),
    "mistral3": Wrapper(
        tower=Tower(
            body=Body(vocabulary=None, extra=projectors.pixtral),
            family=PLAIN_HEADS,
            model_type="pixtral",
        ),
        projector=projectors.mistral3,
    ),
    "mllama": Wrapper(
        tower=Tower(
            body=replace(IMAGE, final_norms=2, extra=projectors.mllama_vision),
            family=replace(PLAIN_HEADS, build=projectors.mllama_layers),
            model_type="mllama_vision_model",
            names={"num_attention_heads": "attention_heads"},
        ),
        projector=projectors.mllama,
    ),
    "qwen2_vl": Wrapper(
        tower=Tower(
            body=replace(
                IMAGE,
                final_norms=0,
                mlp=replace(PLAIN, width=extras.ratio_width),
                extra=projectors.qwen2_vl_patches,
            ),
            family=BIASED_HEADS,
            model_type="qwen2_vl_vision",
            names={**QWEN_DEPTH, "output_size": "hidden_size", "hidden_size": "embed_dim"},
        ),
        projector=projectors.qwen2_vl,
    ),
    "qwen2_5_vl": Wrapper(
        tower=Tower(
            body=Body(
                final_norms=0,
                vocabulary=None,
                mlp=Mlp(bias=True),
                extra=projectors.qwen2_vl_patches,
            ),
            family=BIASED_HEADS,
            model_type="qwen2_5_vl_vision",
            names=QWEN_DEPTH,
        ),
        projector=projectors.qwen2_5_vl,
    ),
    "qwen3_vl": Wrapper(tower=QWEN3_TOWER, projector=projectors.qwen3_vl),
    "qwen3_vl_moe": Wrapper(
        tower=replace(QWEN3_TOWER, model_type="qwen3_vl_moe_vision"),
        projector=projectors.qwen3_vl,
    ),
}
