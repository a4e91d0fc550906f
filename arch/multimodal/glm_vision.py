"""GLM-4.1V and its kin: a tower that ends in its own merger."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture
from ..attention.shape import AttentionShape
from ..attention.shared import TOWER_MHA
from ..body.body import Body, Layers
from ..body.feed_forward import Mlp, matrices
from ..body.image_embeddings import patch_count, patches
from ..body.projectors import no_projector
from ..body.shared import DEEPSEEK_BODY, SANDWICH
from ..body.towers import DEPTH_KEYS, Tower, fixed_tower, one_tower
from ..config_view import ConfigView
from ..tying import config_says, either_says


def _downsampled(view: ConfigView, width: int) -> int:
    """Neighbouring patches to one, then a projection, a norm and a gated MLP of `width`."""
    hidden, out = view.integer("hidden_size"), view.integer("out_hidden_size")
    joined = out * (hidden * view.integer("spatial_merge_size") ** 2 + 1)
    return joined + out * out + 2 * out + matrices(out, width, gated=True)


def _frames(view: ConfigView) -> int:
    """A convolution over patches of several frames."""
    frames = view.integer("temporal_patch_size")
    return patches(view, bias=False, channels="in_channels") * frames + view.integer("hidden_size")


def glm4v_embeddings_and_merger(view: ConfigView, layers: Layers) -> int:
    """Patches, positions, and the merger that ends in `out_hidden_size`."""
    positions = patch_count(view) * view.integer("hidden_size")
    return _frames(view) + positions + _downsampled(view, view.integer("intermediate_size"))


def glm_ocr_embeddings_and_merger(view: ConfigView, layers: Layers) -> int:
    """The same without positions; the merger is wider."""
    width = view.integer("out_hidden_size") * view.integer("in_channels")
    return _frames(view) + _downsampled(view, width)


GLM4V_TOWER = Tower(
    body=Body(
        vocabulary=None,
        final_norms=2,
        mlp=Mlp(width="out_hidden_size"),
        more=glm4v_embeddings_and_merger,
    ),
    attention=replace(TOWER_MHA, qkv_bias="attention_bias"),
    model_type="glm4v_vision",
    names=DEPTH_KEYS,
)
GLM4V_MOE_TOWER = replace(GLM4V_TOWER, model_type="glm4v_moe_vision")
GLM_OCR_TOWER = replace(
    GLM4V_TOWER,
    body=replace(
        GLM4V_TOWER.body,
        final_norms=1,
        mlp=Mlp(bias="attention_bias"),
        more=glm_ocr_embeddings_and_merger,
    ),
    attention=replace(TOWER_MHA, qkv_bias="attention_bias", o_bias="attention_bias", norm="head"),
    model_type="glm_ocr_vision",
)

GLM4V = MULTIMODAL.relative(
    "glm4v", config={"tied": either_says}, body=fixed_tower(GLM4V_TOWER, projector=no_projector)
)

ARCHITECTURES = (
    GLM4V,
    Architecture(
        types=("glm4v_text",),
        attention=AttentionShape(qkv_bias=True, fixed_head_dim=True),
        body=SANDWICH,
        rotary="pairs",
    ),
    GLM4V.relative("glm4v_moe", body=fixed_tower(GLM4V_MOE_TOWER, projector=no_projector)),
    Architecture(
        types=("glm4v_moe_text",),
        attention=AttentionShape(qkv_bias="attention_bias"),
        body=DEEPSEEK_BODY,
        rotary="halves",
    ),
    GLM4V.relative(
        *("glm46v", "glmga"),
        config={"tied": config_says},
        body=one_tower(GLM4V_TOWER, projector=no_projector),
    ),
    GLM4V.relative("glm_ocr", body=fixed_tower(GLM_OCR_TOWER, projector=no_projector)),
    Architecture(types=("glm_ocr_text",), body=SANDWICH, rotary="pairs"),
)
