"""Kimi: DeepSeek-V3 with other towers, and linear attention."""

from dataclasses import replace

from ..architecture import Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.image_embeddings import area
from ..body.projectors import linear
from ..body.shapes import AFTER_FIRST, IMAGE
from ..body.towers import BIASED_HEADS, Part, Tower, Wrapper
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..states.hybrid import LINEAR, hybrid, latent
from ..states.kinds import at
from ..states.linear import kimi_delta
from ..tensors.names import HYBRID_MLA
from ..tying import never
from .deepseek import DEEPSEEK_V3


def kimi_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    """`linear_attn_config` lists both kinds, from 1 on; else every fourth layer but 0 is full."""
    legacy = view.child("linear_attn_config")
    full = legacy.integers("full_attn_layers")
    if full is not None and legacy.integers("kda_layers") is not None:
        return tuple(FULL if i + 1 in full else LINEAR for i in range(count))
    return at(0, 4, FULL, LINEAR, first=1)(view, count)


def moonvit(view: ConfigView, layers: Layers) -> int:
    """Patches of three channels, and a grid of positions."""
    hidden = view.integer("hidden_size")
    grid = view.integer("pos_emb_height") * view.integer("pos_emb_width")
    return linear(3 * area(view, "patch_size"), hidden) + grid * hidden


def kimi_k25(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm and two matrices over merged patches."""
    merged = tower.integer("hidden_size") * area(tower, "merge_kernel_size")
    norm = 2 * view.integer("projection_hidden_size")
    return norm + linear(merged, merged) + linear(merged, text.integer("hidden_size"))


MOONVIT = Tower(
    body=replace(IMAGE, extra=moonvit),
    attention=BIASED_HEADS,
    model_type="kimi_k25_vision",
)
KIMI_DELTA = Recurrence(form="Kimi delta", layers="without heads")

KIMI_K2 = DEEPSEEK_V3.relative("kimi_k2", config={"read_as": "deepseek_v3"})
KIMI_K25 = Architecture(
    types=("kimi_k25",),
    config=ConfigKeys(text="text_config"),
    body=Wrapper(parts=(Part(towers=(MOONVIT,), projector=kimi_k25),)),
)
# Its code is published with its weights.
KIMI_VL = Architecture(
    types=("kimi_vl",),
    config=ConfigKeys(text="text_config", defaults={"text_config": {"model_type": "deepseek_v3"}}),
)
KIMI_LINEAR = Architecture(
    types=("kimi_linear",),
    config=ConfigKeys(tied=never),
    attention=AttentionShape(build=hybrid({FULL: latent, LINEAR: kimi_delta}), kinds=kimi_kinds),
    body=Body(experts=replace(AFTER_FIRST, count="num_experts")),
    tensors=HYBRID_MLA,
    gguf=(
        Gguf(architecture="kimi-linear", recurrence=KIMI_DELTA),
        Gguf(architecture="kimi-k3", recurrence=KIMI_DELTA),
    ),
)
ARCHITECTURES = (
    KIMI_K2,
    KIMI_K25,
    KIMI_VL,
    KIMI_LINEAR,
)
