"""Bodies, MLPs and experts that several lineages share."""

from dataclasses import replace

from .body import WEIGHT_AND_BIAS, Body, no_head
from .feed_forward import Experts, Mlp, after_dense, after_first_dense, typed


def bare(body: Body) -> Body:
    """The same of a type whose classes have no head."""
    return replace(body, classes={"Model": no_head}, default_class="Model")


# MLPs
MLP_BIAS = Mlp(bias="mlp_bias")
PLAIN = Mlp(gated=False, bias=True)
PLAIN_MLP_BIAS = Mlp(gated=False, bias="mlp_bias")
N_INNER = Mlp(width="n_inner", times=4, gated=False, bias=True)
NO_MLP = Mlp(width=lambda view, layer: 0)

# Decoders with RMSNorm and a gated MLP
DECODER = Body()
DECODER_MLP_BIAS = Body(mlp=MLP_BIAS)
SANDWICH = Body(norms=4)  # norms before and after each half


# Encoders of images
IMAGE = Body(norm=WEIGHT_AND_BIAS, vocabulary=None, mlp=PLAIN)
BARE_ENCODER = bare(IMAGE)

# Experts as wide as the config's MLP (Mixtral)
SAME_WIDTH = Experts(count="num_local_experts", width="intermediate_size")
ONE_SHARED = Experts(shared=1, shared_width="shared_expert_intermediate_size")

# Experts in all but the first layers (DeepSeek), which `mlp_layer_types` may list
DEEPSEEK_EXPERTS = Experts(count="n_routed_experts", layers=after_dense, shared="n_shared_experts")
DEEPSEEK_BODY = Body(experts=DEEPSEEK_EXPERTS)
LISTED_EXPERTS = replace(DEEPSEEK_EXPERTS, layers=typed(after_dense))
EXPERTS_AFTER_FIRST = replace(DEEPSEEK_EXPERTS, layers=after_first_dense)
