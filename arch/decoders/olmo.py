"""OLMo and Molmo 2."""

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import FULL, every
from ..attention.shape import AttentionShape
from ..body.body import NO_NORM, WEIGHT, Body
from ..body.feed_forward import Experts
from ..body.shapes import DECODER
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain
from ..states.kinds import at
from ..states.linear import gated_delta_net
from ..tensors.names import HYBRID, QK_NORM, TensorNames, under


def olmo_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    found = at(3, 4, FULL, LINEAR)(view, count)
    return found if FULL in found else (*found[:-1], FULL)


def molmo_norm(view: ConfigView) -> str:
    """Molmo 2: `qk_norm_type` is the model whose q/k norms it has."""
    return "head" if view.get("qk_norm_type") == "qwen3" else "heads"


MOLMO2_TENSORS = TensorNames(modules=under("self_attn", qkv="att_proj", o="attn_out") | QK_NORM)
OLMO = Architecture(
    types=("olmo",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=Body(norm=NO_NORM, named=True),
    rotary="halves",
    conversion=Conversion(by_layer=True),
)
OLMO2 = OLMO.relative(
    "olmo2",
    attention={"norm": "heads"},
    body={"norm": WEIGHT},
    rotary=None,
    conversion=Conversion(),
    gguf=(Gguf(architecture="olmo2", windows=Windows(period=4)),),
)
OLMO3 = OLMO2.relative("olmo3", attention={"kinds": every(4)})
OLMOE = OLMO2.relative("olmoe", body={"experts": Experts(width="intermediate_size")})
FLEX_OLMO = OLMOE.relative("flex_olmo", body={"named": False})
OLMO_HYBRID = OLMO2.relative(
    "olmo_hybrid",
    config={"aliases": LAYER_TYPES},
    attention={"build": hybrid({FULL: plain, LINEAR: gated_delta_net}), "kinds": olmo_kinds},
    body=DECODER,
    tensors=HYBRID,
)
MOLMO2 = Architecture(types=("molmo2",), config=ConfigKeys(text="text_config"))
MOLMO2_TEXT = Architecture(
    types=("molmo2_text",),
    attention=AttentionShape(qkv_bias="attention_bias", norm=molmo_norm),
    tensors=MOLMO2_TENSORS,
)
ARCHITECTURES = (
    OLMO,
    OLMO2,
    OLMO3,
    OLMOE,
    FLEX_OLMO,
    OLMO_HYBRID,
    MOLMO2,
    MOLMO2_TEXT,
)
