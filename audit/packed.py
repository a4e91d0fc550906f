"""Logical parameters of packed weights: how many weights the stored codes stand for.

Scales, zero points and shapes travel with the codes of their module and count as none. Layouts are
those of the tools that write them: AutoGPTQ and AutoAWQ (int32 words along one axis), bitsandbytes,
MXFP4 (OCP Microscaling Formats 1.0, as in gpt-oss), NVFP4 (ModelOpt and compressed-tensors), fp8
with scales, MLX, EETQ, BitNet, and HQQ as transformers 4 saved it.
"""

from collections.abc import Iterator, Mapping

from headcount.sources.safetensors import TensorInfo

FLOATS = frozenset({"F64", "F32", "F16", "BF16"})
_WORDS = frozenset({"I32", "U32"})
_MXFP6_BYTES = 24  # of 32 codes
# What HQQ calls its codes; beside them in a module lie scales, zero points, and a description.
HQQ_CODES = "W_q"
_HQQ_3_BIT = 10  # codes of 3 bit in a word
# What torchao calls its codes, whose layouts their names do not tell.
TORCHAO_CODES = "._weight_qdata"
_BYTES = frozenset({"I8", "U8", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ"})

# Ends of the names of what travels with codes, and the ends of the codes' own names.
_COMPANIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (".qzeros", (".qweight",)),
    (".g_idx", (".qweight",)),
    (".scales", (".qweight", ".weight")),
    (".biases", (".weight",)),
    (".scale", (".weight",)),
    (".SCB", (".weight",)),
    (".weight_format", (".weight",)),
    *(
        (f".weight_{name}", (".weight", ".weight_packed"))
        for name in (
            *("scale", "scale_inv", "scale_2", "zero_point", "global_scale", "shape", "g_idx"),
            "scales",
        )
    ),
    *(
        (f"._weight_{name}", (TORCHAO_CODES,))
        for name in ("scale", "zero_point", "scale_and_zero", "per_tensor_scale", "act_pre_scale")
    ),
    *(
        (f".{name}", (".weight", ".weight_packed"))
        for name in (
            *("input_scale", "input_global_scale", "activation_scale", "output_scale"),
            *("pre_quant_scale", "input_zero_point", "output_zero_point"),
        )
    ),
    ("_scales", ("_blocks",)),
    ("_scale_inv", ("",)),
    ("_scale", ("",)),
)
_INSIDE = (".absmax", ".quant_map", ".nested_absmax", ".nested_quant_map")


class Packing:
    """The tensors of one checkpoint as weights. `bits` is the width of one code by the config."""

    def __init__(self, tensors: Mapping[str, TensorInfo], bits: int | None) -> None:
        self.tensors = tensors
        self.bits = bits
        # Most checkpoints hold floats alone, and need no look at names.
        self.plain = all(
            tensor.dtype in FLOATS and not name.endswith(".qweight")
            for name, tensor in tensors.items()
        )

    def weights(self, tensor: TensorInfo) -> int | None:
        """The weights that `tensor` stands for: 0 for scales and the like, None if unknown."""
        if self.plain:
            return tensor.elements
        if self.is_companion(tensor.name):
            return 0
        if tensor.name.endswith(TORCHAO_CODES):
            return None
        if tensor.dtype in FLOATS or tensor.dtype == "F4":
            return None if tensor.name.endswith(".qweight") else tensor.elements
        if tensor.dtype in _WORDS:
            return self._of_words(tensor)
        if tensor.dtype in _BYTES and self._is_weight(tensor):
            return self._of_bytes(tensor)
        return 0  # indices, masks and other buffers

    def is_code(self, tensor: TensorInfo) -> bool:
        """Whether its elements are codes of weights."""
        if self.plain or self.is_companion(tensor.name):
            return False
        if tensor.name.endswith(TORCHAO_CODES):
            return True
        if tensor.dtype in _WORDS:
            return self._of_words(tensor) != 0
        return tensor.dtype == "F4" or (tensor.dtype in _BYTES and self._is_weight(tensor))

    def is_companion(self, name: str) -> bool:
        """Whether `name` is a scale, zero point or shape of codes that are there."""
        return any(self._is_packed(code) for code in codes_of(name))

    def has_companion(self, name: str) -> bool:
        """Whether the codes `name` have a scale with them."""
        return any(other in self.tensors for other in _scales_of(name))

    def _is_weight(self, tensor: TensorInfo) -> bool:
        """Whether bytes are weights: 8-bit integers are also masks, such as GPT-NeoX's."""
        name = tensor.name
        named = name.endswith((".weight", "_blocks", ".weight_packed", f".{HQQ_CODES}"))
        return tensor.dtype.startswith("F8") or named or self.has_companion(name)

    def _is_packed(self, name: str) -> bool:
        found = self.tensors.get(name)
        return found is not None and (found.dtype not in FLOATS or name.endswith(".qweight"))

    def _of_words(self, tensor: TensorInfo) -> int | None:
        base, _, end = tensor.name.rpartition(".")
        if end == HQQ_CODES:
            return tensor.elements * _HQQ_3_BIT  # other widths are bytes
        scales = (f"{base}.scales", f"{base}.weight_scale")
        if end == "weight" and not any(name in self.tensors for name in scales):
            return 0
        if end not in ("qweight", "weight_packed", "weight"):
            return 0
        bits = self._word_bits(tensor, base)
        return None if bits is None else tensor.elements * 32 // bits

    def _word_bits(self, tensor: TensorInfo, base: str) -> int | None:
        """GPTQ's g_idx has one entry per input row, which 32/bits rows share a word of."""
        index = self.tensors.get(f"{base}.g_idx")
        if tensor.name.endswith(".qweight") and index is not None and len(tensor.shape) == 2:
            rows = 32 * tensor.shape[0]
            if index.elements and rows % index.elements == 0:
                return rows // index.elements
        zeros, scale = (self.tensors.get(f"{base}.weight_{x}") for x in ("zero_point", "scale"))
        if tensor.name.endswith(".weight") and zeros is not None and scale is not None:
            return 32 * zeros.elements // scale.elements if scale.elements else None  # Quark
        return self.bits

    def _of_bytes(self, tensor: TensorInfo) -> int | None:
        name = tensor.name
        if name.endswith(f".{HQQ_CODES}"):
            return tensor.elements * 8 // self.bits if self.bits else None
        if self._is_ternary(tensor):
            return tensor.elements * 4
        if self._codes_a_scale(tensor) == _MXFP6_BYTES:
            return tensor.elements * 8 // 6
        halves = tensor.dtype in ("U8", "I8") and (
            name.endswith(("_blocks", ".weight_packed"))
            or any(f"{name}{end}" in self.tensors for end in _INSIDE)
            or self._shares_scales(tensor)
        )
        return tensor.elements * 2 if halves else tensor.elements

    def _shares_scales(self, tensor: TensorInfo) -> bool:
        """Two codes a byte: a scale stands for 8 bytes (NVFP4) or 16 bytes (MXFP4) of a row."""
        return self._codes_a_scale(tensor) in (8, 16) or self._is_cut_by_rows(tensor)

    def _codes_a_scale(self, tensor: TensorInfo) -> int | None:
        """Bytes of a row for each scale of 8 bit beside it; None for another kind of scale."""
        for other in (f"{tensor.name}_scale", f"{tensor.name.removesuffix('.weight')}.scale"):
            scale = self.tensors.get(other)
            if scale is None or not tensor.shape or not scale.shape or scale.dtype in FLOATS:
                continue
            if scale.shape[-1] and tensor.shape[-1] % scale.shape[-1] == 0:
                return tensor.shape[-1] // scale.shape[-1]
        return None

    def _is_cut_by_rows(self, tensor: TensorInfo) -> bool:
        """Two rows of codes a byte: ModelOpt's int4 has half the rows of its scales."""
        scale = self.tensors.get(f"{tensor.name}_scale")
        if scale is None or len(scale.shape) < 2 or len(tensor.shape) < 2:
            return False
        return tensor.dtype == "U8" and scale.shape[-2] == 2 * tensor.shape[-2]

    def _is_ternary(self, tensor: TensorInfo) -> bool:
        """Four codes a byte: BitNet's have one scale a matrix."""
        scale = self.tensors.get(f"{tensor.name}_scale")
        if scale is None or scale.elements != 1 or scale.dtype not in FLOATS:
            return False
        return tensor.dtype == "U8" and len(tensor.shape) == 2


def codes_of(name: str) -> Iterator[str]:
    """Names of the codes that a tensor called `name` may belong to."""
    for end, codes in _COMPANIONS:
        if name.endswith(end):
            base = name.removesuffix(end)
            yield from (base + code for code in codes)
    base, _, last = name.rpartition(".")
    if last not in (HQQ_CODES, "weight", "bias"):
        yield f"{base}.{HQQ_CODES}"
    head, found, tail = name.rpartition(".weight.")
    if found and (f".{tail}" in _INSIDE or tail.startswith("quant_state.")):
        yield f"{head}.weight"


def _scales_of(name: str) -> Iterator[str]:
    for end, codes in _COMPANIONS:
        if "scale" not in end and end != ".SCB":
            continue
        yield from (name.removesuffix(code) + end for code in codes if name.endswith(code))
    yield from (f"{name}{end}" for end in _INSIDE[:1])
    if name.endswith(f".{HQQ_CODES}"):
        yield f"{name.removesuffix(HQQ_CODES)}scale"
