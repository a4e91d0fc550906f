"""How engines store keys and values: the dtypes of `--kv-dtype` and what their scales add.

vLLM's layouts are those of vllm/v1/kv_cache_interface.py, vllm/v1/attention/backends/mla and, for
UltraQuant, vllm/v1/attention/ops/ultraquant/format.py.
"""

from dataclasses import dataclass, replace

from headcount.model.dtypes import BITS, resolve_dtype
from headcount.model.errors import HeadcountError, short

# DeepSeek's own layouts of a token of MLA: 512 values of 1 byte, four float32 scales and 64 rotated
# bfloat16 (656); or 4-bit values with scales of 1 byte per 16 (352).
_FP8_LATENT, _NVFP4_LATENT = 656, 352
_HEAD_SCALES = 8  # bytes: a float32 for the keys and one for the values of a head


@dataclass(frozen=True, kw_only=True, slots=True)
class KvFormat:
    """`bits` an element; a byte of scale per `scale_every` elements of them; `head_bytes` beside
    each K/V head's pair per token; `latent_bytes` a token of MLA where its kernel has a layout of
    its own, `sparse_latent_bytes` where it picks tokens by an indexer. `packed` are the bits of a
    key's and of a value's elements where both lie in one slot per head, with a norm of 2 bytes for
    keys of less than 8 bit and 4 bytes of scale and zero for the values, rounded up to 2; the first
    and last `plain_ends` layers of models without recurrent state then keep `plain_bits`.
    `state_bits` are those of recurrent state, `conv_bits` of convolutions', which keep a column
    more for each of `speculated` tokens."""

    bits: int
    scale_every: int | None = None
    head_bytes: int = 0
    latent_bytes: int | None = None
    sparse_latent_bytes: int | None = None
    packed: tuple[int, int] | None = None
    plain_ends: int = 0
    plain_bits: int = 16
    state_bits: int = 16
    conv_bits: int = 16
    speculated: int = 0


def _turbo(keys: int, values: int) -> KvFormat:
    """TurboQuantConfig of vllm/model_executor/layers/quantization/turboquant/config.py."""
    return KvFormat(bits=keys, packed=(keys, values), plain_ends=2)


# Names of engines that say more than an element's width.
_SPECIAL = {
    "fp8_ds_mla": KvFormat(bits=8, latent_bytes=_FP8_LATENT, sparse_latent_bytes=_FP8_LATENT),
    "nvfp4": KvFormat(bits=4, scale_every=16),
    "nvfp4_ds_mla": KvFormat(
        bits=4, scale_every=16, latent_bytes=_NVFP4_LATENT, sparse_latent_bytes=_NVFP4_LATENT
    ),
    "nvfp4_4over6": KvFormat(bits=4, scale_every=16),
    "fp8_inc": KvFormat(bits=8),  # Gaudi
    "turboquant_k8v4": _turbo(8, 4),
    "turboquant_4bit_nc": _turbo(4, 4),
    "turboquant_k3v4_nc": _turbo(3, 4),
    "turboquant_3bit_nc": _turbo(3, 3),
    "ultraquant_4bit": KvFormat(bits=4, scale_every=32, plain_ends=2),
    "fp4_e2m1": KvFormat(bits=4, scale_every=16),  # SGLang
    "fp4_mx_block16": KvFormat(bits=4, scale_every=16),
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
        return replace(_SPECIAL[name], plain_bits=compute_bits)
    try:
        bits = BITS[resolve_dtype(name)]
    except HeadcountError as error:
        known = ", ".join(ENGINE_DTYPES)
        raise HeadcountError(
            f"--kv-dtype {short(name)} is no dtype and no cache of an engine's"
            f"\nknown are auto, bf16, fp16, fp8, fp8_e4m3, fp8_e5m2, int8, {known}"
        ) from error
    return KvFormat(bits=bits, sparse_latent_bytes=_FP8_LATENT if bits == 8 else None)
