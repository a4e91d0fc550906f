"""Molmo and VideoLLaMA 3 by the code that is published with them: the keys of the language model
stand at the top of the file."""

from dataclasses import replace

from headcount.model.spec import Layer

from ..architecture import Architecture
from ..attention.shape import AttentionShape
from ..body.body import Body, Layers
from ..body.feed_forward import Mlp
from ..body.image_towers import CLIP_TOWER
from ..body.projectors import linear
from ..config_view import ConfigView
from ..tensors.names import TensorNames

# The last layer of CLIP ViT-L/14 of 336 pixels is left out (allenai/Molmo-7B-D-0924,
# VisionBackboneConfig), and its final norm.
VIT = {
    **{"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 23},
    **{"num_attention_heads": 16, "image_size": 336, "patch_size": 14, "num_channels": 3},
}
NEW_TOKENS = 128  # rows of the embedding beside the vocabulary


def half_width(view: ConfigView, layer: Layer) -> int:
    """`intermediate_size` counts both branches of the gated MLP."""
    return view.integer("intermediate_size") // 2


def molmo_rest(view: ConfigView, layers: Layers) -> int:
    """Rows of the two vocabularies that vocab_size does not count; the tower; attention that pools
    two of its layers; a gated MLP to the hidden size; two vectors for padding."""
    hidden, vocab = view.integer("hidden_size"), view.integer("vocab_size")
    more = (view.optional("embedding_size") or vocab) - vocab
    rows = (NEW_TOKENS + 2 * more) * hidden
    tower = replace(CLIP_TOWER, body=replace(CLIP_TOWER.body, final_norms=1))
    width = VIT["hidden_size"]
    pooling = 3 * linear(2 * width, width) + linear(width, width)
    inner = view.integer("intermediate_size") // 2
    projector = 2 * width * inner + inner * hidden
    images = tower.parameters(ConfigView(VIT, where=view.where))
    return rows + images + pooling + projector + 2 * 2 * width


MOLMO_NAMES = TensorNames(
    modules={"att_proj": "qkv", "attn_out": "o", "q_norm": "norm", "k_norm": "norm"}
)

ARCHITECTURES = (
    Architecture(
        types=("molmo",),
        attention=AttentionShape(qkv_bias="qkv_bias", norm="heads", norm_if="attention_layer_norm"),
        body=Body(mlp=Mlp(width=half_width), more=molmo_rest),
        tensors=MOLMO_NAMES,
    ),
)
