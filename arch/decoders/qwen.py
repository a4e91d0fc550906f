"""TODO."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..attention.layer_kinds import SLIDING
from ..attention.per_layer import Values
from ..body.body import Layers
from ..body.feed_forward import matrices
from ..config_view import ConfigView
from ..tensors.names import LLAMA


def qwen_width(view: ConfigView, layer: Layer) -> int:
    """Qwen's first model counts both branches of the gated MLP in `intermediate_size`."""
    return view.integer("intermediate_size") // 2


def mimo_prediction(view: ConfigView, layers: Layers) -> int:
    """Each layer for multi-token prediction is a whole layer with a projection of two hidden states
    to one, and three norms more. Its attention counts here: nothing of it is decoded with."""
    count = view.optional("num_nextn_predict_layers", minimum=0) or 0
    hidden = view.integer("hidden_size")
    mlp = matrices(hidden, view.integer("intermediate_size"), gated=True)
    return count * (layers[-1].parameters().total + mlp + 2 * hidden * hidden + 5 * hidden)


def mimo_window(view: ConfigView) -> int:
    """`sliding_window_size` counts the tokens before the query only (MiMo-V2-Flash)."""
    before = view.optional("sliding_window_size")
    return view.integer("sliding_window") if before is None else before + 1


def mimo_values(view: ConfigView, kinds: tuple[str, ...]) -> Values:
    """Sliding layers have twice the K/V heads, and attention sinks."""
    kv = view.integer("num_key_value_heads")
    own = {"num_key_value_heads": 2 * kv, "attention_sinks": True}
    return [own if kind == SLIDING else {} for kind in kinds]


def sinks_by_layer(view: ConfigView, heads: int, head_dim: int) -> int:
    return heads if view.flag("attention_sinks") else 0


MIMO_NAMES = replace(LLAMA, modules={**LLAMA.modules, "self_attn.attention_sink_bias": "other"})
