"""How many bits a quantised checkpoint stores per parameter, from its `quantization_config`.

For models whose headers are not at hand. Scales and zero points count with their weights.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from headcount.model.errors import InvalidConfigError, short
from headcount.model.numbers import whole

_FLOAT32, _FLOAT16 = 32, 16


class StoredFormat(NamedTuple):
    """`bits` per parameter of the quantised linear layers; embeddings and the head stay 16 bit."""

    name: str
    bits: Fraction
    quantises_attention: bool


def stored_format(config: Mapping[str, Any]) -> StoredFormat | None:
    """The format of `config`; None if it quantises nothing or in a way that is not known here.

    Raises InvalidConfigError where the modules that stay as they are are no list of names.
    """
    settings = quantization_config(config)
    if settings is None:
        return None
    method = str(settings.get("quant_method", ""))
    bits = _bits(method, settings)
    if bits is None:
        return None
    kept = [*_names(settings, "modules_to_not_convert"), *_names(settings, "ignore")]
    attention = not any("attn" in name for name in kept)
    return StoredFormat(name=method, bits=bits, quantises_attention=attention)


def _names(settings: Mapping[str, Any], key: str) -> list[str]:
    """Names of modules; a null is none of them, and a lone string is one."""
    value = settings.get(key)
    if value is None:
        return []
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InvalidConfigError(
            f"config.json: quantization_config.{key} is {short(value)}; a list of names is expected"
        )
    return names


def quantization_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The settings, which multimodal configs keep at the top or in text_config."""
    for holder in (config, config.get("text_config")):
        if isinstance(holder, Mapping) and isinstance(holder.get("quantization_config"), Mapping):
            found: Mapping[str, Any] = holder["quantization_config"]
            return found
    return None


def _bits(method: str, settings: Mapping[str, Any]) -> Fraction | None:
    if method == "mxfp4":  # 32 codes of 4 bits share a scale of 8 (OCP Microscaling Formats 1.0)
        return 4 + Fraction(8, 32)
    if method in ("fp8", "fbgemm_fp8"):
        return 8 + _block_scale(settings.get("weight_block_size"))
    if method in ("gptq", "awq"):  # a 16-bit scale and a zero point of `bits` per group
        return _grouped(settings.get("bits"), settings.get("group_size"), zero_point=True)
    if method == "compressed-tensors":
        return _compressed(settings)
    if method == "bitsandbytes":  # NF4: a float32 absmax per block of 64; int8: one per row
        return 4 + Fraction(_FLOAT32, 64) if settings.get("load_in_4bit") else Fraction(8)
    return None


def _block_scale(block: Any) -> Fraction:
    """Bits per parameter of one float32 scale per block; per tensor or row it is nothing."""
    sizes = [_size(side) for side in block] if isinstance(block, list) else []
    if len(sizes) != 2 or sizes[0] is None or sizes[1] is None:
        return Fraction(0)
    return Fraction(_FLOAT32, sizes[0] * sizes[1])


def _grouped(bits: object, group_size: object, *, zero_point: bool) -> Fraction | None:
    wide, grouped = _size(bits), _size(group_size)
    if wide is None or grouped is None:  # -1 or None: one scale per output row
        return None if wide is None else Fraction(wide)
    extra = _FLOAT16 + (wide if zero_point else 0)
    return Fraction(wide * grouped + extra, grouped)


def _compressed(settings: Mapping[str, Any]) -> Fraction | None:
    """The first group's weights: files with several groups of different widths are rare."""
    groups = settings.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, Mapping) else None
    weights = first.get("weights") if isinstance(first, Mapping) else None
    if not isinstance(weights, Mapping):
        return None
    zero_point = weights.get("symmetric") is False
    return _grouped(weights.get("num_bits"), weights.get("group_size"), zero_point=zero_point)


def _size(value: object) -> int | None:
    number = whole(value)
    return number if number is not None and 0 < number < 2**31 else None
