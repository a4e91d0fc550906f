"""Sizes as people write and read them. Inside the program every size is an integer."""

import re
from collections.abc import Iterable, Sequence

from . import limits
from .errors import HeadcountError, short

_TOKEN_SUFFIX = {"": 1, "k": 2**10, "m": 2**20}
_BYTE_SUFFIX = {
    **{"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12},
    **{"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40},
    **{"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12},
}
_COUNT_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)", re.ASCII)


def key_value_heads(count: int) -> str:
    """`8 K/V heads`, `1 K/V head`."""
    return f"{count:,} K/V head{'' if count == 1 else 's'}"


def parse_tokens(text: str) -> int:
    """Tokens from `8192`, `8k` or `1m`, where 1k = 1,024. Raises HeadcountError."""
    return _parse(text, _TOKEN_SUFFIX, "a number of tokens, such as 8192, 8k or 1m (1k = 1,024)")


def parse_bytes(text: str) -> int:
    """Bytes from `80GiB` (2^30) or `24GB` (10^9, as is `24G`); `18.69GiB`, which is no whole number
    of them, is rounded down. Raises HeadcountError."""
    expected = "a size, such as 80GiB (2^30 bytes) or 24GB (10^9 bytes)"
    return _parse(text, _BYTE_SUFFIX, expected, rounds=True)


def parse_count(text: str) -> int:
    """Parameters from `7b` or `124m`, in powers of ten as model names have them."""
    return _parse(text, _COUNT_SUFFIX, "a number of parameters, such as 124m or 7b (powers of ten)")


def _parse(text: str, suffixes: dict[str, int], expected: str, *, rounds: bool = False) -> int:
    """Exact: a float loses integers beyond 2^53. With `rounds` a unit's fraction may be any."""
    from fractions import Fraction  # takes milliseconds, and most commands parse no size

    digits = text.strip().lower().replace(",", "").replace("_", "")
    match = _SIZE.fullmatch(digits) if len(digits) <= limits.NUMBER_CHARACTERS.most else None
    if match is None or match[2] not in suffixes:
        raise HeadcountError(f"{short(text)} is not {expected}")
    value = Fraction(match[1]) * suffixes[match[2]]
    if value < 1 or (value.denominator != 1 and not (rounds and suffixes[match[2]] > 1)):
        raise HeadcountError(f"{short(text)} is not {expected}")
    if value > limits.NUMBER.most:
        raise HeadcountError(f"{short(text)} is not {expected}: at most {limits.NUMBER.most:,}")
    return int(value)


def format_bytes(count: int) -> str:
    """`16.0 GiB`; below 1 KiB the plain number of bytes."""
    if abs(count) < 2**10:
        return f"{count} B"
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if abs(count) >= 2**power * 0.9995 or power == 10:
            return f"{count / 2**power:,.2f} {unit}"
    raise AssertionError("unreachable")


def format_count(count: int) -> str:
    """`8.03 B`, `124.4 M`: parameters as model names abbreviate them (powers of ten)."""
    for power, unit in ((12, "T"), (9, "B"), (6, "M")):
        if count >= 10**power:
            return f"{count / 10**power:,.2f} {unit}"
    return f"{count:,}"


def format_indices(numbers: Iterable[int]) -> str:
    """`0-3, 7`: layer numbers as people write them."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


def format_layers(indices: Sequence[int]) -> str:
    """`0-31`; a long list keeps its ends and says how many layers it is: `3, 7, …, 47 (12)`."""
    runs = format_indices(indices).split(", ")
    if len(runs) <= 4:
        return ", ".join(runs)
    return f"{runs[0]}, {runs[1]}, …, {runs[-1]} ({len(indices)})"
