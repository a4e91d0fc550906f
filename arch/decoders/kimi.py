"""Kimi: DeepSeek-V3 with other towers, and linear attention."""

from dataclasses import replace

from headcount.model.errors import short
from headcount.model.mixers import Mixer

from ..architecture import MULTIMODAL, Architecture, ConfigKeys
from ..attention.layer_kinds import FULL
from ..attention.layers import latent_attention
from ..attention.shape import AttentionShape
from ..attention.shared import TOWER_MHA_BIASED
from ..body.body import Body, Layers
from ..body.feed_forward import after_first_dense, matrices
from ..body.image_embeddings import area
from ..body.projectors import linear
from ..body.shared import EXPERTS_AFTER_FIRST, IMAGE
from ..body.towers import Tower, fixed_tower
from ..body.uncounted import UncountedError
from ..config_view import ConfigView
from ..gguf.form import Gguf, Recurrence
from ..modules.names import BLOCK_SPARSE, DEEPSEEK_PREDICTION
from ..states.hybrid import LINEAR, hybrid
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


def gated_latent(shape: AttentionShape, view: ConfigView, kind: str) -> tuple[Mixer, ...]:
    """Latent attention; with `mla_use_output_gate` (Kimi-K3) a gate on each element of what o
    reads."""
    mixer = latent_attention(view)
    width = mixer.num_attention_heads * mixer.v_head_dim
    gate = mixer.hidden_size * width if view.flag("mla_use_output_gate") else 0
    return (replace(mixer, other_parameters=gate),)


def kimi_k3_parts(view: ConfigView, layers: Layers) -> int:
    """Kimi-K3's attention residuals: a query over the outputs of earlier blocks and a norm of them,
    before each half of a layer and at the end, as its config's keys name them (a millionth of the
    model; no class of transformers has them); and with `latent_moe_use_norm` a
    norm of what the routed experts read."""
    sparse = len(after_first_dense(view, len(layers)))
    inner = view.optional("routed_expert_hidden_size") or view.integer("hidden_size")
    norms = sparse * inner if view.flag("latent_moe_use_norm") else 0
    if view.optional("attn_res_block_size") is None:
        return norms
    return norms + 2 * (2 * len(layers) + 1) * view.integer("hidden_size")


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


def moonvit_k3(view: ConfigView) -> int:
    """MoonViT as Kimi-K3's own code builds it: all its heads together are `qkv_hidden_size` wide,
    and neither norms nor matrices have biases unless the config says so."""
    hidden, width = view.integer("hidden_size"), view.integer("intermediate_size")
    inner, bias = view.optional("qkv_hidden_size") or hidden, view.flag("attn_bias")
    attention = linear(hidden, 3 * inner, bias=bias) + linear(inner, hidden, bias=bias)
    mlp = matrices(hidden, width, gated=False, bias=view.flag("linear_bias"))
    norm = hidden * (2 if view.get("norm_type") == "layernorm" else 1)
    pixels = 3 * area(view, "patch_size")
    grid = view.integer("pos_emb_height") * view.integer("pos_emb_width") * hidden
    embeddings = linear(pixels, hidden, bias=view.flag("patch_embed_proj_bias")) + grid
    return view.integer("num_hidden_layers") * (attention + mlp + 2 * norm) + norm + embeddings


def kimi_k3_projector(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices over merged patches, and a norm of what they give.

    Raises UncountedError for a projector of another kind."""
    kind = tower.get("mm_projector_type")
    if kind not in (None, "patchmergerv2"):
        raise UncountedError(f"its projector is a {short(kind)}, not counted here")
    width = tower.optional("mm_hidden_size") or tower.integer("hidden_size")
    merged, out = width * area(tower, "merge_kernel_size"), text.integer("hidden_size")
    return linear(merged, merged, bias=False) + linear(merged, out, bias=False) + out


# The names of the files that are published with the code of their own.
MOONVIT_KEYS = {
    **{"hidden_size": "vt_hidden_size", "intermediate_size": "vt_intermediate_size"},
    **{"num_hidden_layers": "vt_num_hidden_layers"},
    **{"num_attention_heads": "vt_num_attention_heads"},
    **{"pos_emb_height": "init_pos_emb_height", "pos_emb_width": "init_pos_emb_width"},
}
MOONVIT_TOWER = Tower(
    body=replace(IMAGE, more=moonvit_embeddings),
    attention=TOWER_MHA_BIASED,
    model_type="kimi_k25_vision",
    names=MOONVIT_KEYS,
)
MOONVIT_K3_TOWER = Tower(model_type="kimi_k3_vision", whole=moonvit_k3, names=MOONVIT_KEYS)
KIMI_EXPERTS = replace(EXPERTS_AFTER_FIRST, count="num_experts", inputs="routed_expert_hidden_size")
KIMI_DELTA = Recurrence(form="Kimi delta", layers="without heads")

ARCHITECTURES = (
    DEEPSEEK_V3.relative(
        "kimi_k2", config={"read_as": "deepseek_v3"}, prediction=DEEPSEEK_PREDICTION
    ),
    MULTIMODAL.relative("kimi_k25", body=fixed_tower(MOONVIT_TOWER, projector=kimi_k25_projector)),
    # Its code is published with its weights; SGLang's kimi_k3_vl.py loads them by the same names.
    MULTIMODAL.relative("kimi_k3", body=fixed_tower(MOONVIT_K3_TOWER, projector=kimi_k3_projector)),
    # Its code is published with its weights.
    MULTIMODAL.relative(
        "kimi_vl", config={"defaults": {"text_config": {"model_type": "deepseek_v3"}}}
    ),
    Architecture(
        types=("kimi_linear",),
        config=ConfigKeys(tied=never),
        attention=AttentionShape(
            build=hybrid({FULL: gated_latent, LINEAR: kimi_delta}), kinds=kimi_kinds
        ),
        body=Body(experts=KIMI_EXPERTS, more=kimi_k3_parts),
        feed_forward=BLOCK_SPARSE,
        tensors=HYBRID_MLA_NAMES,
        gguf=(
            Gguf(architecture="kimi-linear", recurrence=KIMI_DELTA),
            Gguf(architecture="kimi-k3", recurrence=KIMI_DELTA),
        ),
    ),
)
