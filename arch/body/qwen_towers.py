"""The image towers of Qwen's models, and what joins them to a language model."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..attention.shared import TOWER_MHA_BIASED
from ..config_view import ConfigView
from .body import Body, Layers
from .feed_forward import Mlp
from .image_embeddings import patches
from .projectors import linear
from .shared import IMAGE, PLAIN
from .towers import DEPTH_KEYS, Tower


def ratio_width(view: ConfigView, layer: Layer) -> int:
    return view.integer("hidden_size") * view.integer("mlp_ratio")


def _merged(tower: ConfigView) -> int:
    return tower.integer("hidden_size") * tower.integer("spatial_merge_size") ** 2


def _merger(tower: ConfigView, out: int, norm: int) -> int:
    merged = _merged(tower)
    return norm + linear(merged, merged) + linear(merged, out)


def _frames(view: ConfigView, *, bias: bool) -> int:
    """Patches of several frames."""
    hidden, frames = view.integer("hidden_size"), view.integer("temporal_patch_size")
    weight = patches(view, bias=False, channels="in_channels") * frames
    return weight + (hidden if bias else 0)


def qwen2_vl_patches(view: ConfigView, layers: Layers) -> int:
    return _frames(view, bias=False)


def qwen3_vl_patches(view: ConfigView, layers: Layers) -> int:
    """With a bias, and learned positions."""
    positions = view.integer("num_position_embeddings") * view.integer("hidden_size")
    return _frames(view, bias=True) + positions


def qwen2_vl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return _merger(tower, tower.integer("output_size"), 2 * tower.integer("hidden_size"))


def qwen2_5_vl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    return _merger(tower, tower.integer("out_hidden_size"), tower.integer("hidden_size"))


def qwen3_vl_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """One merger at the end, and one for each layer whose output joins the language model's."""
    out, early = tower.integer("out_hidden_size"), tower.integers("deepstack_visual_indexes") or ()
    last = _merger(tower, out, 2 * tower.integer("hidden_size"))
    return last + len(early) * _merger(tower, out, 2 * _merged(tower))


QWEN2_VL_TOWER = Tower(
    body=replace(
        IMAGE, final_norms=0, mlp=replace(PLAIN, width=ratio_width), more=qwen2_vl_patches
    ),
    attention=TOWER_MHA_BIASED,
    model_type="qwen2_vl_vision",
    names={**DEPTH_KEYS, "output_size": "hidden_size", "hidden_size": "embed_dim"},
)
QWEN2_5_VL_TOWER = Tower(
    body=Body(final_norms=0, vocabulary=None, mlp=Mlp(bias=True), more=qwen2_vl_patches),
    attention=TOWER_MHA_BIASED,
    model_type="qwen2_5_vl_vision",
    names=DEPTH_KEYS,
)
QWEN3_VL_TOWER = Tower(
    body=replace(IMAGE, final_norms=0, more=qwen3_vl_patches),
    attention=TOWER_MHA_BIASED,
    model_type="qwen3_vl_vision",
    names=DEPTH_KEYS,
)
