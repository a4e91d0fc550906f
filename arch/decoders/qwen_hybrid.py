"""TODO."""

from dataclasses import replace

from ..body.qwen_towers import QWEN3_VL_TOWER
from ..tensors.names import HYBRID, LLAMA, under

QWEN3_5_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_vision")
QWEN3_5_MOE_TOWER = replace(QWEN3_VL_TOWER, model_type="qwen3_5_moe_vision")


# Qwen 4: an indexer, and connections between layers that are called after the attention.
QWEN4_NAMES = replace(
    HYBRID,
    modules={**LLAMA.modules}
    | under("self_attn.indexer", other="index_qk_proj")
    | {"self_attn.indexer.q_layernorm": "other", "self_attn.indexer.k_layernorm": "other"}
    | {
        f"attn_hyper_connection.{name}": ""
        for name in (
            *("block_inject_weight", "hc_norm"),
            *("input_mix_weight_down", "input_mix_weight_up"),
        )
    },
)
