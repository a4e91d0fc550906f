"""TODO."""

from ..body.body import Layers
from ..body.projectors import linear
from ..config_view import ConfigView
from ..tensors.names import MLA, TensorNames, under


def rotary_scales(view: ConfigView, layers: Layers) -> int:
    """Mistral Large 4 learns a scale of each rotary frequency."""
    return view.integer("qk_rope_head_dim") // 2


def time_conditions(view: ConfigView, layers: Layers) -> int:
    """Voxtral Realtime: two matrices of rank 32 that modulate a norm in each layer."""
    return len(layers) * 2 * 32 * view.integer("hidden_size")


def mistral3(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """A norm, a merger of neighbouring patches, and two matrices."""
    hidden, out = tower.integer("hidden_size"), text.integer("hidden_size")
    merged = hidden * view.integer("spatial_merge_size") ** 2
    layers = view.get("vision_feature_layer")
    features = len(layers) if isinstance(layers, list) else 1
    bias = view.flag("multimodal_projector_bias")
    merger = hidden + linear(merged, hidden, bias=False)
    return merger + linear(features * hidden, out, bias=bias) + linear(out, out, bias=bias)


def voxtral(view: ConfigView, tower: ConfigView, text: ConfigView) -> int:
    """Two matrices over joined frames."""
    out = text.integer("hidden_size")
    return (tower.integer("intermediate_size") + out) * out


MISTRAL_LARGE4_NAMES = TensorNames(
    modules=under("attention", q="wq", kv_a="wkv_a_with_mqa", kv_b="wkv_b", o="wo")
    | {"attention.o_proj": "o", "attention.kv_a_norm": "norm"}
    | {**MLA.modules},
    rest="other",
)
