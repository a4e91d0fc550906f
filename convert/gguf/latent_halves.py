"""What a latent becomes in each head, cut in two: llama.cpp multiplies the keys' half into queries,
and the values' half into what attention has read (src/models/deepseek2.cpp)."""

from headcount.model.mixers import LatentAttention

from .gguf_file import HeadHalf
from .names import without_layer

_WHOLE = "attn_kv_b.weight"
_KEYS, _VALUES = "attn_k_b.weight", "attn_v_b.weight"
# What the loader creates under conditions (load_arch_tensors in src/models/deepseek2.cpp) that all
# files of ours meet: queries without a latent, lengths in key_length_mla, dense layers alone.
_FFN = tuple(f"ffn_{name}.weight" for name in ("gate", "up", "down"))
LATENT_NEEDS = frozenset(f"blk.{name}" for name in ("attn_q.weight", _KEYS, _VALUES, *_FFN))


def halves(name: str) -> tuple[str, ...]:
    """The tensors of the file that hold the one which is called `name` while it is whole."""
    if without_layer(name) != f"blk.{_WHOLE}":
        return (name,)
    layer = name.removesuffix(_WHOLE)
    return (layer + _KEYS, layer + _VALUES)


def half_of(name: str, mixer: LatentAttention) -> HeadHalf | None:
    """Which half the tensor `name` of the file is; None: no half."""
    sizes = {
        "heads": mixer.num_attention_heads,
        "keys": mixer.qk_nope_head_dim,
        "values": mixer.v_head_dim,
    }
    match without_layer(name).removeprefix("blk."):
        case "attn_k_b.weight":
            return HeadHalf(half="k", **sizes)
        case "attn_v_b.weight":
            return HeadHalf(half="v", **sizes)
    return None
