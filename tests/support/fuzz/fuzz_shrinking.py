"""A smaller input that shows the same finding."""

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

_TRIES = 3000
Shows = Callable[[bytes], bool]


def shrunk(data: bytes, shows: Shows) -> bytes:
    """`data` with all left out that its finding does not need, as far as some tries tell: values of
    JSON first, then runs of bytes."""
    tries = iter(range(_TRIES))
    smaller = True
    while smaller:
        smaller = False
        for candidate in _without_a_value(data) or _without_a_run(data):
            if next(tries, None) is None:
                return data
            if len(candidate) < len(data) and shows(candidate):
                data, smaller = candidate, True
                break
    return data


def _without_a_value(data: bytes) -> list[bytes]:
    """The same JSON without one of its values; nothing for what is no JSON."""
    found = []
    with suppress(ValueError, RecursionError):
        document = json.loads(data)
        for path in _paths(document):
            found.append(json.dumps(_without(document, path)).encode())
    return found


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """The way to each value, the outer ones first."""
    items = (
        value.items() if isinstance(value, dict) else enumerate(value if _is_list(value) else ())
    )
    children = list(items)
    yield from ((key,) for key, _ in children)
    for key, child in children:
        yield from ((key, *path) for path in _paths(child))


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _without(value: Any, path: tuple[Any, ...]) -> Any:
    first, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[first] = _without(value[first], tuple(rest))
    else:
        del copy[first]
    return copy


def _without_a_run(data: bytes) -> Iterator[bytes]:
    """The same bytes without a half of them, a quarter, an eighth, … and at last one."""
    size = len(data) // 2
    while size:
        for start in range(0, len(data), size):
            yield data[:start] + data[start + size :]
        size //= 2
