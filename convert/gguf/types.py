"""Which element type a tensor of the file gets."""

from ..plan.request import Q8_0, ElementType
from .gguf_file import QUANTISED_BLOCK, GgmlType
from .names import without_layer

# Always float32: what llama.cpp adds or multiplies, and knows in no other type
# (prepare_tensors in conversion/base.py).
_WIDE = frozenset(
    {
        *("position_embd.weight", "token_types.weight", "blk.ffn_gate_inp.weight"),
        "blk.ffn_gate_inp_shexp.weight",
    }
)
# The way down to a latent, which --home mla makes so small that float16, and the float16 scales of
# blocks, have no such numbers. Narrow files have it in bfloat16 and not in float32: llama.cpp's
# Metal and Vulkan round float32 matrices to float16 as they multiply batches (kernel_mul_mm_f32_f32
# in ggml-metal/kernels/mul_mm.metal, FLOAT_TYPE in vulkan-shaders-gen.cpp), but not bfloat16 ones.
LATENT_DOWN = "blk.attn_kv_a_mqa.weight"
_STORED: dict[str, GgmlType] = {"F64": "F32", "F32": "F32", "F16": "F16", "BF16": "BF16"}
_ASKED: dict[str, GgmlType] = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}


def type_of(name: str, shape: tuple[int, ...], stored: str, asked: ElementType | None) -> GgmlType:
    """The type of the tensor `name` of the file, whose numbers are `stored` as safetensors calls
    it; `asked` is that of --dtype. Rows of no whole blocks stay float16 where blocks are asked
    for, as llama.cpp's own converter has it."""
    if len(shape) < 2 or not name.endswith(".weight") or name.endswith("_norm.weight"):
        return "F32"
    if without_layer(name) in _WIDE:
        return "F32"
    if without_layer(name) == LATENT_DOWN:
        kind = _STORED[stored] if asked is None else _ASKED.get(asked)
        return "F32" if kind == "F32" else "BF16"
    if asked == Q8_0:
        return "F16" if shape[-1] % QUANTISED_BLOCK else "Q8_0"
    return _STORED[stored] if asked is None else _ASKED[asked]
