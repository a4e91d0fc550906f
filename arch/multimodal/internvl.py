"""InternVL and Qianfan-OCR: a norm and two matrices over joined patches."""

from dataclasses import replace

from ..architecture import MULTIMODAL
from ..attention.shared import TOWER_MHA
from ..body.body import Layers, lm_head
from ..body.image_embeddings import patch_count, patches
from ..body.image_towers import INTERNVL_TOWER
from ..body.projectors import linear
from ..body.shared import IMAGE
from ..body.towers import Tower, fixed_tower
from ..config_view import ConfigView
from ..tying import text_says


def internvl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm over joined patches, and two matrices."""
    ratio = view.positive("downsample_ratio", minimum=0.01, maximum=1)
    side = 2 if ratio is None else int(1 / ratio)
    inputs, out = tower.integer("hidden_size") * side**2, text.integer("hidden_size")
    return 2 * inputs + linear(inputs, out) + linear(out, out)


def intern_vit_rest(view: ConfigView, layers: Layers) -> int:
    """Patches, a class token and positions, two scales in each layer, the biases of its norms if
    these are LayerNorms, and norms of q and k over all heads."""
    hidden, count = view.integer("hidden_size"), len(layers)
    rows = patch_count(view) + 2 + 2 * count
    rows += 0 if view.get("norm_type") == "rms_norm" else 2 * count
    rows += 2 * count if view.flag("use_qk_norm") else 0
    return patches(view, bias=True) + rows * hidden


QIANFAN_TOWER = replace(INTERNVL_TOWER, model_type="qianfan_ocr_vision")

INTERNVL = MULTIMODAL.relative(
    "internvl", body=fixed_tower(INTERNVL_TOWER, projector=internvl_projector)
)

# The names and defaults of the code that is published with InternVL's own files
# (configuration_intern_vit.py of OpenGVLab/InternVL).
INTERN_VIT_KEYS = {"attention_bias": "qkv_bias", "use_qk_norm": "qk_normalization"}
INTERN_VIT_DEFAULTS = {
    **{"num_channels": 3, "patch_size": 14, "image_size": 224, "qkv_bias": False},
    **{"hidden_size": 3200, "num_attention_heads": 25, "intermediate_size": 12800},
    **{"qk_normalization": True, "num_hidden_layers": 48, "norm_type": "rms_norm"},
}
INTERN_VIT = Tower(
    model_type="intern_vit_6b",
    body=replace(IMAGE, norm=1, final_norms=0, more=intern_vit_rest),
    attention=replace(TOWER_MHA, qkv_bias="attention_bias", o_bias=True),
    names=INTERN_VIT_KEYS,
    defaults=INTERN_VIT_DEFAULTS,
)

ARCHITECTURES = (
    INTERNVL,
    # InternVL 1.2 to 3.5 by the code that is published with them.
    MULTIMODAL.relative(
        "internvl_chat",
        config={"text": "llm_config", "tied": text_says},
        body=replace(
            fixed_tower(INTERN_VIT, projector=internvl_projector), classes={"ChatModel": lm_head}
        ),
    ),
    INTERNVL.relative(
        "qianfan_ocr",
        body=fixed_tower(QIANFAN_TOWER, projector=internvl_projector),
        stacks={"language_model.model.encoder.layers": "decoder"},
    ),
)
