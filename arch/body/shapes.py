"""Bodies, MLPs and experts that several lineages share."""

from .body import WEIGHT_AND_BIAS, Body
from .feed_forward import Experts, Mlp, after, after_dense, typed

# MLPs
MLP_BIAS = Mlp(bias="mlp_bias")
PLAIN = Mlp(gated=False, bias=True)
N_INNER = Mlp(width="n_inner", times=4, gated=False, bias=True)
NO_MLP = Mlp(width=lambda view, layer: 0)

# Decoders with RMSNorm and a gated MLP
DECODER = Body()
DECODER_MLP_BIAS = Body(mlp=MLP_BIAS)
SANDWICH = Body(norms=4)  # norms before and after each half

# LayerNorm once before both halves, and a plain MLP (Phi, GPT-J)
PARALLEL = Body(norm=WEIGHT_AND_BIAS, norms=1, mlp=PLAIN, head_bias=True)

# Encoders of images
IMAGE = Body(norm=WEIGHT_AND_BIAS, vocabulary=None, mlp=PLAIN)

# Experts as wide as the config's MLP (Mixtral)
SAME_WIDTH = Experts(count="num_local_experts", width="intermediate_size")
MIXTRAL_BODY = Body(experts=SAME_WIDTH)
ONE_SHARED = Experts(shared=1, shared_width="shared_expert_intermediate_size")

# Experts in all but the first layers (DeepSeek), which `mlp_layer_types` may list
DEEPSEEK_EXPERTS = Experts(count="n_routed_experts", layers=after_dense, shared="n_shared_experts")
DEEPSEEK_BODY = Body(experts=DEEPSEEK_EXPERTS)
AFTER_DENSE = Experts(
    count="n_routed_experts", layers=typed(after_dense), shared="n_shared_experts"
)
AFTER_FIRST = Experts(
    count="n_routed_experts",
    layers=typed(after("first_k_dense_replace", 1)),
    shared="n_shared_experts",
)
