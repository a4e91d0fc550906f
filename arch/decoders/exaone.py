"""EXAONE."""

from ..architecture import Architecture, ConfigKeys, Conversion
from ..attention.layer_kinds import exaone4
from ..attention.shape import AttentionShape
from ..body.body import Body
from ..body.feed_forward import Experts, after_dense, typed
from ..body.shapes import DECODER_MLP_BIAS
from ..tensors.names import LLAMA, TensorNames, separate

# Its own files call the projections as GPT-Neo does.
EXAONE_TENSORS = TensorNames(modules={**separate("attn.attention", o="out_proj"), **LLAMA.modules})


EXAONE = Architecture(
    types=("exaone",),
    attention=AttentionShape(qkv_bias="attention_bias", o_bias="attention_bias"),
    body=DECODER_MLP_BIAS,
    tensors=EXAONE_TENSORS,
    rotary="halves",
    conversion=Conversion(width_checked=True),
)
EXAONE4 = Architecture(
    types=("exaone4",), attention=AttentionShape(kinds=exaone4, norm="head"), body=Body(named=True)
)
EXAONE4_5 = Architecture(types=("exaone4_5",), config=ConfigKeys(text="text_config"))
EXAONE_MOE = EXAONE4.relative(
    "exaone_moe", body=Body(experts=Experts(layers=typed(after_dense), shared="num_shared_experts"))
)

ARCHITECTURES = (
    EXAONE,
    EXAONE4,
    EXAONE4_5,
    EXAONE_MOE,
)
