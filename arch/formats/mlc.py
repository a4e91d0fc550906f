"""MLC LLM: one name says all of it, such as q4f16_1 (QUANTIZATION of mlc_llm/quantization)."""

import re
from collections.abc import Mapping

from headcount.model.errors import short

from ..modules.module import IN_LAYERS, Module
from .format import Format
from .scheme import Choice, UnknownFormatError
from .settings import Settings

# Bits of a code, what the rest is stored as, and which form: 2 leaves embeddings and head alone.
_NAME = re.compile(r"q([034])(bf16|f16|f32)(?:_([012]))?")
_DTYPES = {"f16": "float16", "bf16": "bfloat16", "f32": "float32"}
_GROUPS = {3: 40, 4: 32}
_LARGEST_GATE = 256  # rows: a linear layer called gate with no more of them is a router


def mlc_name(config: Settings) -> str | None:
    """What mlc-chat-config.json calls its quantisation; None for any other config."""
    name = config.get("quantization")
    inner = config.get("model_config")
    return name if isinstance(name, str) and isinstance(inner, Mapping) else None


def mlc_dtype(config: Settings) -> str | None:
    """What is computed in, and what norms and biases are stored as; None where no name says it."""
    found = _NAME.fullmatch(mlc_name(config) or "")
    return _DTYPES[found[2]] if found else None


def mlc_scheme(settings: Settings, config: Settings) -> Choice:
    """Groups of a row with a scale and no zero point, in words of 32 bits, the last group padded
    (GroupQuantize of group_quantization.py); q0 quantises nothing. Towers stay."""
    name = str(settings.get("name"))
    found = _NAME.fullmatch(name)
    bits = int(found[1]) if found else 0
    if found is None or (bits == 0) == bool(found[3]):
        raise UnknownFormatError(f"MLC LLM has stored it as {short(name)}")
    form = None if bits == 0 else _groups(bits, 32 if found[2] == "f32" else 16)
    tables = found[3] != "2"

    def choose(module: Module, names: tuple[str, ...]) -> Format | None:
        if module.kind in ("embedding", "head"):
            return form if tables else None
        large_gate = module.kind == "router" and module.rows > _LARGEST_GATE
        return form if module.kind in IN_LAYERS or large_gate else None

    return choose


def _groups(bits: int, scale_bits: int) -> Format:
    return Format(
        name=f"{bits} bit",
        bits=bits,
        packed=32,
        whole=True,
        group=_GROUPS[bits],
        scale_bits=scale_bits,
        padded=True,
    )
