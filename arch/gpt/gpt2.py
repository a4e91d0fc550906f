"""GPT-2 and its kin: learned positions and fused [q | k | v]; GPT-Neo and CTRL beside them."""

from dataclasses import replace

from ..architecture import Architecture, Conversion
from ..attention.shape import as_query_heads, multi_query_heads
from ..attention.shared import MHA_BIASED, MHA_CROSSING
from ..body.body import DECODER_CLASSES, WEIGHT_AND_BIAS, Body, lm_head, one_per_mixer
from ..body.feed_forward import Mlp, four_times_hidden
from ..body.shared import N_INNER
from ..config_view import ConfigView
from ..tensors.names import GPT2_NAMES, TensorNames, separate, under

CTRL_NAMES = TensorNames(modules=under("multi_head_attention", q="Wq", k="Wk", v="Wv", o="dense"))
GPT_BIGCODE_NAMES = replace(GPT2_NAMES, transposed=False, fused="heads")
GPT_NEO_NAMES = TensorNames(modules=separate("attn.attention", o="out_proj"))

# SantaCoder's first files: the remote class of a gpt2, whose q lies beside one head of k and v.
CUSTOM_CLASS = "GPT2LMHeadCustomModel"
GPT2_OR_CUSTOM_NAMES = GPT2_NAMES.also(under("attn", q="q_attn", kv="kv_attn"))


def one_head_of_custom_class(view: ConfigView, heads: int) -> int:
    """SantaCoder's own class reads `attention_head_type`, and GPT-2's does not
    (modeling_gpt2_mq.py)."""
    says_one = view.get("attention_head_type") == "multiquery"
    if not says_one or CUSTOM_CLASS not in (view.strings("architectures") or ()):
        return as_query_heads(view, heads)
    return int(view.note("num_key_value_heads", 1, "derived: attention_head_type"))


GPT2 = Architecture(
    types=("gpt2",),
    attention=replace(MHA_CROSSING, key_value_heads=one_head_of_custom_class),
    body=Body(
        norm=WEIGHT_AND_BIAS,
        norms=one_per_mixer,
        positions=("max_position_embeddings",),
        mlp=N_INNER,
        named=True,
        classes={**DECODER_CLASSES, CUSTOM_CLASS: lm_head},
    ),
    tensors=GPT2_OR_CUSTOM_NAMES,
    rotary="none",
    rehomes=("bigcode.GPT2_TO_BIGCODE",),
)

ARCHITECTURES = (
    GPT2,
    GPT2.relative("gpt-sw3", config={"read_as": "gpt2"}, body={"named": False}),
    GPT2.relative("imagegpt", body=None, rotary=None),
    GPT2.relative(
        "openai-gpt",
        attention={"cached": False, "stack": "decoder", "cross": False},
        body={
            "final_norms": 0,
            "mlp": Mlp(width=four_times_hidden, gated=False, bias=True),
            "named": False,
        },
        rotary=None,
    ),
    GPT2.relative(
        "gpt_bigcode",
        attention={
            "kv_heads_from": "flag",
            "key_value_heads": multi_query_heads,
            "key_value_keys": ("multi_query",),
        },
        tensors=GPT_BIGCODE_NAMES,
        conversion=Conversion(only=1, variant={"multi_query": False}),
    ),
    GPT2.relative(
        "gpt_neo",
        attention={"qkv_bias": False, "cross": False},
        body={"mlp": Mlp(times=4, gated=False, bias=True)},
        tensors=GPT_NEO_NAMES,
    ),
    Architecture(
        types=("ctrl",),
        attention=MHA_BIASED,
        body=Body(
            norm=WEIGHT_AND_BIAS, mlp=Mlp(width="dff", gated=False, bias=True), head_bias=True
        ),
        tensors=CTRL_NAMES,
        rotary="none",
    ),
)
