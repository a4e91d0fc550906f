"""Strict reading of JSON that a stranger wrote: bounded, UTF-8 only, duplicate keys noticed."""

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from headcount.model import limits
from headcount.model.errors import HeadcountError, InvalidConfigError, short
from headcount.model.limits import Limit

from .identity import FileIdentity, ReadFile

BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # read over here; Python's json and transformers refuse it


class NotJsonError(InvalidConfigError):
    """The bytes are not those that were written: cut off, or of another kind."""


class _DuplicateKeys(ValueError):
    pass


def open_regular(path: Path) -> int:
    """A read-only descriptor of a regular file; a FIFO or device is refused, never waited for.

    It is looked at first, since opening a device can do something by itself, and once more when it
    is open, since it may have been replaced in between.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise HeadcountError(f"{path}: is not a regular file")
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    except FileNotFoundError as error:
        raise HeadcountError(f"{path}: no such file") from error
    except OSError as error:
        raise HeadcountError(f"{path}: cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise HeadcountError(f"{path}: is not a regular file")
    return descriptor


@contextmanager
def open_bytes(path: Path, buffering: int = -1) -> Iterator[BinaryIO]:
    """The bytes of a regular file, of which `buffering` are read at a time. Raises HeadcountError,
    also where the disk fails later on."""
    try:
        with os.fdopen(open_regular(path), "rb", buffering) as file:
            yield file
    except OSError as error:
        raise HeadcountError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_json(path: Path, limit: Limit | None = None) -> dict[str, Any]:
    """The JSON object in `path`. Raises InvalidConfigError that names the file and the position."""
    return read_json_file(path, limit)[0]


def read_json_file(path: Path, limit: Limit | None = None) -> tuple[dict[str, Any], ReadFile]:
    """The same, and the file that it was read from."""
    limit = limit or limits.JSON_BYTES
    with open_bytes(path) as file:
        identity = FileIdentity.of(file.fileno())
        if identity.size > limit.most:
            raise InvalidConfigError(limit.refusal(path, identity.size))
        data = file.read(limit.most + 1)
    value = parse_json(data, str(path), allow_non_finite=True)
    return value, ReadFile(path=path, identity=identity, start=data)


def parse_json(data: bytes, where: str, *, allow_non_finite: bool = False) -> dict[str, Any]:
    """`data` as a JSON object. Raises InvalidConfigError.

    `Infinity` and `NaN`, which JSON does not know, are accepted only on demand: real config.json
    files hold them (Nemotron-H: `time_step_limit`).
    """
    short_values = data.count(b",") - len(data) // 16
    if short_values > limits.JSON_VALUES.most:
        raise InvalidConfigError(limits.JSON_VALUES.refusal(where, short_values))
    try:
        value = json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_unique_pairs,
            parse_constant=None if allow_non_finite else _refuse_constant,
        )
    except json.JSONDecodeError as error:
        found = _what_it_is(data)
        at = f"line {error.lineno}, column {error.colno}"
        raise NotJsonError(f"{where}: not JSON ({error.msg}, {at}){found}") from error
    except UnicodeDecodeError as error:
        found = _what_it_is(data)
        raise NotJsonError(f"{where}: not UTF-8 (byte {error.start}){found}") from error
    except (ValueError, RecursionError, MemoryError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidConfigError(f"{where}: {reason}") from error
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{where}: a JSON object is expected, not {type(value).__name__}")
    return value


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        twice = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise _DuplicateKeys(f"the key {short(twice)} stands twice; keep one of them")
    return result


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _what_it_is(data: bytes) -> str:
    """Names the usual impostors, since their cure differs."""
    if data.startswith(b"version https://git-lfs"):
        return "; this is a Git LFS pointer: run `git lfs pull` in that folder"
    if data[:256].lstrip().lower().startswith((b"<!doctype", b"<html")):
        return "; this is an HTML page: the download went wrong"
    return ""
