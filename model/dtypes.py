"""Element types: the names that safetensors, torch and config.json give them, and their bits."""

from fractions import Fraction
from typing import TypeAlias

from .errors import HeadcountError

Bits: TypeAlias = int | Fraction  # of an element, with its share of a scale

# safetensors header name -> bits per element (safetensors/src/tensor.rs, `Dtype::bitsize`).
SAFETENSORS_BITS = {
    **{"BOOL": 8, "U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16},
    **{"I32": 32, "U32": 32, "F32": 32, "I64": 64, "U64": 64, "F64": 64, "C64": 64},
    **{"F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8},
    **{"F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8},
}

# safetensors header name -> config.json `dtype` name
CONFIG_NAME = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# name on the command line or in a config -> bits per element
BITS = {
    **{"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16},
    **{"float8_e4m3fn": 8, "float8_e5m2": 8, "int8": 8, "int4": 4},
}
ALIASES = {
    **{"fp32": "float32", "f32": "float32", "fp16": "float16", "f16": "float16", "half": "float16"},
    **{"bf16": "bfloat16", "fp64": "float64", "f64": "float64", "float": "float32"},
    **{"fp8": "float8_e4m3fn", "fp8_e4m3": "float8_e4m3fn", "fp8_e5m2": "float8_e5m2"},
}


# llama.cpp's further types of caches -> bits of an element, with the scale (and the shift) that a
# block of 32 shares (ggml/src/ggml-common.h: 34, 24, 22, 20, 18 and 18 bytes a block).
_BLOCK_BITS = {
    **{"q8_0": Fraction(34 * 8, 32), "q5_1": Fraction(24 * 8, 32), "q5_0": Fraction(22 * 8, 32)},
    **{name: Fraction(18 * 8, 32) for name in ("q4_0", "iq4_nl")},
    "q4_1": Fraction(20 * 8, 32),
}
CACHE_BITS: dict[str, Bits] = {**BITS, **_BLOCK_BITS}


def resolve_cache_dtype(name: str) -> str:
    """The full name of what keys and values are kept in: a dtype, or one of llama.cpp's blocks.
    Raises HeadcountError."""
    if name.lower() in _BLOCK_BITS:
        return name.lower()
    try:
        return resolve_dtype(name)
    except HeadcountError as error:
        raise HeadcountError(f"{error}, and for a cache {', '.join(_BLOCK_BITS)}") from error


def resolve_dtype(name: str) -> str:
    """The full name of a dtype given by any of its names. Raises HeadcountError."""
    key = name.lower().removeprefix("torch.")
    key = ALIASES.get(key, key)
    if key not in BITS:
        known = ", ".join(BITS)
        raise HeadcountError(
            f"{name!r} is not a known dtype; known are {known}, fp32, fp16, bf16, fp8"
        )
    return key


def bytes_of(elements: int, bits: Bits) -> int:
    """Bytes that hold `elements` of `bits` bits each, rounded up to whole bytes."""
    return -(-elements * bits // 8)
