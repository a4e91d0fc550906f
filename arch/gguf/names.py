"""Names of tensors in GGUF files: src/llama-arch.cpp, and tools/mtmd/clip-impl.h for towers."""

from ..architecture import Architecture
from ..tensors.names import UNKNOWN_NAMES, TensorNames

_CROSS = {f"cross_attn_{letter}": letter for letter in "qkvo"} | {"cross_attn_rel_b": "other"}

GGUF_NAMES = TensorNames(
    modules={
        **{"attn_q": "q", "attn_k": "k", "attn_v": "v", "attn_output": "o", "attn_qkv": "qkv"},
        **{"attn_o": "o", "attn_out": "o"},  # T5's, and a tower's
        **{"attn_q_norm": "norm", "attn_k_norm": "norm", "attn_sinks": "other"},
        **{"attn_rel_b": "other", "attn_gate": "other"},
        **{"attn_q_a": "q_a", "attn_q_b": "q", "attn_kv_a_mqa": "kv_a", "attn_kv_b": "kv_b"},
        # kv_b_proj, cut in two for multiplying it into q and o
        **{"attn_k_b": "k_b", "attn_v_b": "v_b"},
        **{"attn_q_a_norm": "norm", "attn_kv_a_norm": "norm"},
        **dict.fromkeys(("indexer.q_norm", "indexer.k_norm", "indexer.proj"), "other"),
        # DeepSeek-V4's
        **{"attn_kv": "k", "attn_output_a": "o_a", "attn_output_b": "o_b"},
        **{
            f"{of}_compressor_{leaf}": "other"
            for of in ("attn", "indexer")
            for leaf in ("kv", "gate", "ape", "norm")
        },
    },
    cross=_CROSS,
    rest="other",  # of an indexer
)
GGUF_FILE = Architecture(types=(), tensors=GGUF_NAMES)
# Files of other tools, whose tensors have no names that are agreed on.
NAMELESS = Architecture(types=(), tensors=UNKNOWN_NAMES)
