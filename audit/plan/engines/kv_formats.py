"""How engines store keys and values: the dtypes of `--kv-dtype` and what their scales add.

vLLM's layouts are those of vllm/v1/kv_cache_interface.py and vllm/v1/attention/backends/mla.
"""

from dataclasses import dataclass

from ...dtypes import BITS, resolve_dtype

# DeepSeek's own layouts of a token of MLA: 512 values of 1 byte, four float32 scales and 64 rotated
# bfloat16 (656); or 4-bit values with scales of 1 byte per 16 (352).
_FP8_LATENT, _NVFP4_LATENT = 656, 352
_HEAD_SCALES = 8  # bytes: a float32 for the keys and one for the values of a head


@dataclass(frozen=True, kw_only=True, slots=True)
class KvFormat:
    """`bits` an element; a byte of scale per `scale_every` elements of them; `head_bytes` beside
    each K/V head's pair per token; `latent_bytes` a token of MLA where its kernel has a layout of
    its own, `sparse_latent_bytes` where it picks tokens by an indexer. `state_bits` are those of
    recurrent state, `conv_bits` of convolutions'."""

    bits: int
    scale_every: int | None = None
    head_bytes: int = 0
    latent_bytes: int | None = None
    sparse_latent_bytes: int | None = None
    state_bits: int = 16
    conv_bits: int = 16


# Names of engines that say more than an element's width.
_SPECIAL = {
    "fp8_ds_mla": KvFormat(bits=8, latent_bytes=_FP8_LATENT, sparse_latent_bytes=_FP8_LATENT),
    "nvfp4": KvFormat(bits=4, scale_every=16),
    "nvfp4_ds_mla": KvFormat(
        bits=4, scale_every=16, latent_bytes=_NVFP4_LATENT, sparse_latent_bytes=_NVFP4_LATENT
    ),
    "fp4_e2m1": KvFormat(bits=4, scale_every=16),  # SGLang
    "mxfp8": KvFormat(bits=8, scale_every=32),
    "fp8_per_token_head": KvFormat(bits=8, head_bytes=_HEAD_SCALES),
    "int8_per_token_head": KvFormat(bits=8, head_bytes=_HEAD_SCALES),
    "int4_per_token_head": KvFormat(bits=4, head_bytes=_HEAD_SCALES),
}
ENGINE_DTYPES = tuple(_SPECIAL)


def kv_format(name: str | None, *, compute_bits: int) -> KvFormat:
    """The format of `name`: one of an engine's, or a dtype; None and `auto` are the dtype that is
    computed in. Sparse MLA stores fp8 in DeepSeek's layout. Raises HeadcountError."""
    if name is None or name == "auto":
        return KvFormat(bits=compute_bits)
    if name in _SPECIAL:
        return _SPECIAL[name]
    bits = BITS[resolve_dtype(name)]
    return KvFormat(bits=bits, sparse_latent_bytes=_FP8_LATENT if bits == 8 else None)
