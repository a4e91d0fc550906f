"""The formats that quantisers write, each with its scales and what else travels with its codes.

Layouts are those of the tools that write them: AutoGPTQ and GPTQModel, AutoAWQ, bitsandbytes,
compressed-tensors, TensorRT Model Optimizer, MLX, HQQ, optimum-quanto, torchao, Quark; microscaling
types by OCP Microscaling Formats 1.0.
"""

from .format import Format

FLOAT32 = Format(name="float32", bits=32, group=0)
# Weights in four bits that share a scale of 8 bits: by 32, or by 16 with a float32 for the matrix.
MXFP4 = Format(name="mxfp4", bits=4, group=32, scale_bits=8)
MXFP6 = Format(name="mxfp6", bits=6, group=32, scale_bits=8)
MXFP8 = Format(name="mxfp8", bits=8, group=32, scale_bits=8)
NVFP4 = Format(name="nvfp4", bits=4, group=16, scale_bits=8, matrix_bytes=8)
# A float32 scale for the weights and one for what they are multiplied with.
FP8 = Format(name="fp8", bits=8, group=0, scale_bits=32, matrix_bytes=4)
FP8_MATRIX = Format(name="fp8", bits=8, group=0, scale_bits=32)
INT8_ROWS = Format(name="int8", bits=8, scale_bits=32)
TERNARY = Format(name="bitnet", bits=2, group=0, scale_bits=16)
# bitsandbytes: a float32 for 64 weights, or a byte for 64 and a float32 for 256 of these; a table
# of 16 values, one of 256 for the scales' own codes, and a description of about 80 bytes,
# or about 170.
NF4 = Format(name="4 bit", bits=4, group=64, scale_bits=32, flat=True, matrix_bytes=64 + 80)
NF4_NESTED = Format(
    name="4 bit",
    bits=4,
    group=64,
    scale_bits=8,
    flat=True,
    nested=256,
    matrix_bytes=64 + 1024 + 170,
)
# A float32 for each row, and a byte that names the layout.
LLM_INT8 = Format(name="int8", bits=8, scale_bits=32, matrix_bytes=1)


def fp8_blocks(rows: int, columns: int, scale_bits: int = 32) -> Format:
    """A scale for each block."""
    return Format(
        name=f"fp8 in blocks of {rows} x {columns}",
        bits=8,
        block=(rows, columns),
        scale_bits=scale_bits,
    )


def fp8_rows(scale_bits: int = 32) -> Format:
    return Format(name="fp8", bits=8, scale_bits=scale_bits)


def gptq(bits: int, group: int | None, *, indexed: bool = True) -> Format:
    """16-bit scales, zero points as wide as a weight, and the group of each input as int32."""
    return Format(
        name=f"{bits} bit",
        bits=bits,
        packed=32,
        group=group,
        scale_bits=16,
        zero_bits=bits,
        column_bytes=4 if indexed else 0,
    )


def packed_integers(bits: int, group: int | None, *, zero_point: bool, indexed: bool) -> Format:
    """compressed-tensors: int32 words along a row, 16-bit scales, the shape as two int64."""
    return Format(
        name=f"int{bits}",
        bits=bits,
        packed=32,
        whole=True,
        group=group,
        scale_bits=16,
        zero_bits=bits if zero_point else 0,
        column_bytes=4 if indexed else 0,
        matrix_bytes=16,
    )


def affine(bits: int, group: int) -> Format:
    """MLX: a 16-bit scale and a 16-bit bias for each group."""
    return Format(
        name=f"{bits} bit", bits=bits, packed=32, group=group, scale_bits=16, zero_bits=16
    )


def grouped(bits: int, group: int | None, *, scale_bits: int = 16, zero_bits: int = 0) -> Format:
    """Codes of whole bytes with a scale, and a zero point, for each group of a row."""
    return Format(
        name=f"{bits} bit", bits=bits, group=group, scale_bits=scale_bits, zero_bits=zero_bits
    )
