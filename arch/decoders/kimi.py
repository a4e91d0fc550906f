"""Kimi: DeepSeek-V3 with other towers, and linear attention."""

from dataclasses import replace

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..attention.shared import TOWER_MHA_BIASED
from ..body.body import Body, Layers
from ..body.image_embeddings import area
from ..body.projectors import linear
from ..body.shared import EXPERTS_AFTER_FIRST, IMAGE
from ..body.towers import Tower, one_tower
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..modules.names import DEEPSEEK_PREDICTION
from ..states.hybrid import LINEAR, hybrid, plain_latent
from ..states.kinds import every_nth_from
from ..states.linear import kimi_delta
from ..tensors.names import HYBRID_MLA_NAMES
from ..tying import never
from .deepseek import DEEPSEEK_V3


def kimi_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`linear_attn_config` lists both kinds, from 1 on; else every fourth layer but 0 is full."""
    legacy = view.child("linear_attn_config")
    full = legacy.integers("full_attn_layers")
    if full is not None and legacy.integers("kda_layers") is not None:
        return tuple(FULL if i + 1 in full else LINEAR for i in range(count))
    return every_nth_from(0, 4, FULL, LINEAR, first=1)(view, count)


def moonvit_embeddings(view: ConfigView, layers: Layers) -> int:
    """Patches of three channels, and a grid of positions."""
    hidden = view.integer("hidden_size")
    grid = view.integer("pos_emb_height") * view.integer("pos_emb_width")
    return linear(3 * area(view, "patch_size"), hidden) + grid * hidden


def kimi_k25_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm and two matrices over merged patches."""
    merged = tower.integer("hidden_size") * area(tower, "merge_kernel_size")
    norm = 2 * view.integer("projection_hidden_size")
    return norm + linear(merged, merged) + linear(merged, text.integer("hidden_size"))


MOONVIT_TOWER = Tower(
    body=replace(IMAGE, more=moonvit_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="kimi_k25_vision",
)
KIMI_DELTA = Recurrence(form="Kimi delta", layers="without heads")

ARCHITECTURES = (
    DEEPSEEK_V3.relative(
        "kimi_k2", config={"read_as": "deepseek_v3"}, prediction=DEEPSEEK_PREDICTION
    ),
    MULTIMODAL.relative("kimi_k25", body=one_tower(MOONVIT_TOWER, projector=kimi_k25_projector)),
    # Its code is published with its weights.
    MULTIMODAL.relative(
        "kimi_vl", config={"defaults": {"text_config": {"model_type": "deepseek_v3"}}}
    ),
    Architecture(
        types=("kimi_linear",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(
            build=hybrid({FULL: plain_latent, LINEAR: kimi_delta}), kinds=kimi_kinds
        ),
        body=Body(experts=replace(EXPERTS_AFTER_FIRST, count="num_experts")),
        tensors=HYBRID_MLA_NAMES,
        gguf=(
            Gguf(architecture="kimi-linear", recurrence=KIMI_DELTA),
            Gguf(architecture="kimi-k3", recurrence=KIMI_DELTA),
        ),
    ),
)
