"""OLMo, with norms over all heads from OLMo 2 on, a hybrid of it, and Molmo 2."""

from ..architecture import MULTIMODAL, Architecture, Conversion
from ..attention.layer_kinds import FULL, full_every
from ..attention.shape import AttentionShape
from ..attention.shared import LLAMA_ATTENTION
from ..body.body import NO_NORM, WEIGHT, Body
from ..body.feed_forward import Experts
from ..body.shared import DECODER
from ..config_view import ConfigView
from ..gguf.form import Gguf, Windows
from ..states.hybrid import LAYER_TYPES, LINEAR, hybrid, plain_attention
from ..states.kinds import every_nth_from
from ..states.linear import gated_delta_net
from ..tensors.names import HYBRID_NAMES, QK_NORM, TensorNames, under


def olmo_hybrid_kinds(view: ConfigView, count: int) -> tuple[str, ...]:
    found = every_nth_from(3, 4, FULL, LINEAR)(view, count)
    return found if FULL in found else (*found[:-1], FULL)


def molmo_norm(view: ConfigView) -> str:
    """Molmo 2: `qk_norm_type` is the model whose q/k norms it has."""
    return "head" if view.get("qk_norm_type") == "qwen3" else "heads"


MOLMO2_NAMES = TensorNames(modules=under("self_attn", qkv="att_proj", o="attn_out") | QK_NORM)

OLMO = Architecture(
    types=("olmo",),
    attention=LLAMA_ATTENTION,
    body=Body(norm=NO_NORM, named=True),
    rotary="halves",
    # SGLang makes a K/V head for each query head.
    conversion=Conversion(by_layer=True, not_in=("SGLang",)),
)
OLMO2 = OLMO.relative(
    "olmo2",
    attention={"norm": "heads"},
    body={"norm": WEIGHT},
    rotary=None,
    gguf=(Gguf(architecture="olmo2", windows=Windows(period=4)),),
)
OLMOE = OLMO2.relative("olmoe", body={"experts": Experts(width="intermediate_size")})

ARCHITECTURES = (
    OLMO,
    OLMO2,
    OLMO2.relative("olmo3", attention={"kinds": full_every(4)}),
    OLMOE,
    OLMOE.relative("flex_olmo", body={"named": False}),
    OLMO2.relative(
        "olmo_hybrid",
        config={"aliases": LAYER_TYPES},
        attention={
            "build": hybrid({FULL: plain_attention, LINEAR: gated_delta_net}),
            "kinds": olmo_hybrid_kinds,
        },
        body=DECODER,
        tensors=HYBRID_NAMES,
    ),
    MULTIMODAL.relative("molmo2"),
    Architecture(
        types=("molmo2_text",),
        attention=AttentionShape(qkv_bias="attention_bias", norm=molmo_norm),
        tensors=MOLMO2_NAMES,
    ),
)
