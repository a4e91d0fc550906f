"""The [out, in] of a packed projection: the matrix that its codes stand for.

Layouts are those of the tools that write them: GPTQ and AWQ (words along either axis, `scales` with
a column for each output), MLX and compressed-tensors (words along the inputs), bitsandbytes in
4 bits (all in one row), NVFP4 (two codes a byte), ModelOpt's int4 (two rows a byte), BitNet (four),
EETQ (turned around), Quark (words along the outputs, 6 bit), fp8 and int8 (a code an element). A
layout that does not add up to whole codes of the width that the mixer reads is none of these and
says nothing.
"""

from collections.abc import Mapping

from headcount.sources.safetensors import TensorInfo

_WORD_BITS = frozenset({2, 3, 4, 5, 6, 8})
_TERNARY = 4  # codes a byte
_BITS = {"I32": 32, "U32": 32, "U8": 8, "I8": 8}


def logical_shape(
    tensor: TensorInfo, inputs: int, tensors: Mapping[str, TensorInfo]
) -> tuple[int, int] | None:
    """[out, in] of the projection of `inputs` that `tensor` holds the codes of, or None."""
    base, _, end = tensor.name.rpartition(".")
    if len(tensor.shape) != 2 or inputs < 1:
        return None
    if end == "qweight":
        scales = tensors.get(f"{base}.scales")
        rows = scales.shape[-1] if scales is not None and scales.shape else 0
    elif f"{tensor.name}.absmax" in tensors:
        rows = 2 * tensor.elements // inputs  # of 4 bits, in one row
    elif end in ("weight", "weight_packed"):
        rows = _rows(tensor, inputs, tensors)
    else:
        return None
    return (rows, inputs) if rows and _is_whole(tensor, rows * inputs) else None


def _rows(tensor: TensorInfo, inputs: int, tensors: Mapping[str, TensorInfo]) -> int:
    """Outputs of codes that lie in rows, several rows of them in a byte, or that are turned."""
    turned = tensors.get(f"{tensor.name}_scales")  # EETQ calls them so
    scale = tensors.get(f"{tensor.name}_scale")
    if turned is not None:
        return turned.elements
    if scale is not None and tensor.dtype == "I32" and tensor.name.endswith(".weight"):
        return scale.shape[-1] if scale.shape else 0  # Quark's words lie along the outputs
    if scale is not None and tensor.dtype == "U8" and scale.shape:
        if scale.elements == 1:
            return _TERNARY * tensor.shape[0]
        return scale.shape[0]
    return tensor.shape[0]


def _is_whole(tensor: TensorInfo, weights: int) -> bool:
    """Whether the codes are of one whole number of bits that such an element holds."""
    if tensor.dtype.startswith("F8"):
        return tensor.elements == weights
    bits, rest = divmod(tensor.elements * _BITS.get(tensor.dtype, 0), weights)
    if rest or tensor.dtype in ("I32", "U32"):
        return not rest and bits in _WORD_BITS
    return bits in (4, 6, 8) or tensor.elements * _TERNARY == weights
