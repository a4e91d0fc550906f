"""Values of arguments, checked as the command line checks those of its options."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import HeadcountError, short
from headcount.model.units import parse_bytes, parse_count, parse_tokens

Name = str | PathLike[str]  # of a model: a catalogue's, a path, or the Hub's
Size = int | str  # 8192 or "8k", 2**30 or "1GiB"
Check = Callable[[str, Any], Any]


def model_name(model: Name) -> str:
    """The name of a model, or a path. Raises HeadcountError for an empty one, or what is none."""
    name = fspath(model) if isinstance(model, str | PathLike) else None
    if not isinstance(name, str) or not name or "\0" in name:
        raise HeadcountError(f"{short(model)} names nothing: give a name or a path")
    return name


def text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise HeadcountError(f"{name} is {short(value)}; a text that is not empty is meant")
    return value


def flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise HeadcountError(f"{name} is {short(value)}; True or False is meant")
    return value


def size(name: str, value: Any, parse: Callable[[str], int]) -> int:
    """A number, or a text as the command line takes it."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise HeadcountError(f"{name} is {short(value)}; a number, or a text of one, is meant")
    try:
        return parse(str(value))
    except HeadcountError as error:
        raise HeadcountError(f"{name}: {error}") from error


tokens: Check = partial(size, parse=parse_tokens)
nbytes: Check = partial(size, parse=parse_bytes)
count: Check = partial(size, parse=parse_count)


def integer(name: str, value: Any, least: int = 1, most: int = limits.NUMBER.most) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise HeadcountError(f"{name} is {short(value)}; from {least} to {most:,} is meant")
    return value


def number(name: str, value: Any, least: float = 0.0) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not isfinite(value) or value < least:
        raise HeadcountError(f"{name} is {short(value)}; a number from {least:g} on is meant")
    return float(value)


def named(name: str, value: Any) -> str:
    """The name of a model, or of a file."""
    try:
        return model_name(value)
    except HeadcountError as error:
        raise HeadcountError(f"{name}: {error}") from error


def path(name: str, value: Any) -> Path:
    return Path(named(name, value))


def one_of(choices: Iterable[str]) -> Check:
    """What holds a value against `choices`."""
    known = tuple(choices)

    def check(name: str, value: Any) -> str:
        if value not in known:
            raise HeadcountError(f"{name} {short(value)} is not one of {', '.join(known)}")
        return str(value)

    return check


def several(check: Check) -> Check:
    """What holds each value of a sequence against `check`."""

    def each(name: str, value: Any) -> tuple[Any, ...]:
        if isinstance(value, str) or not isinstance(value, Iterable):
            raise HeadcountError(f"{name} is {short(value)}; a list or tuple is meant")
        return tuple(check(name, one) for one in value)

    return each


def checked(given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """The arguments `given`, but for those that are None. Raises HeadcountError for a value that
    its check refuses, TypeError for a name that has none, as Python does."""
    unknown = next((name for name in given if name not in checks), None)
    if unknown is not None:
        raise TypeError(f"unexpected keyword argument {unknown!r}")
    return {name: checks[name](name, v) for name, v in given.items() if v is not None}


def settled(given: Mapping[str, Any], checks: Mapping[str, Check]) -> dict[str, Any]:
    """All of `given`, also those that are None or that nothing here checks: what takes them does.
    Raises HeadcountError."""
    return {
        name: value if value is None or name not in checks else checks[name](name, value)
        for name, value in given.items()
    }


WORKLOAD: Mapping[str, Check] = {
    "context": tokens,
    "batch_size": partial(integer, most=limits.BATCH_SIZE.most),
    "kv_dtype": text,
    "encoder_tokens": tokens,
}
