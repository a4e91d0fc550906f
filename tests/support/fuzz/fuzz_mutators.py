"""Other inputs of one: bytes cut and swapped, and JSON whose values are of another kind."""

import json
import math
import re
import struct
from collections.abc import Iterator
from random import Random
from typing import Any

# Values of every kind, and numbers at the ends of what types hold.
ODD: tuple[Any, ...] = (
    *(None, True, False, "", "x", [], {}, [None], [[]], [{}], {"a": 1}, "y" * 5000, "9" * 5000),
    *(0, -1, 1, 2, 7, 0.5, 3.0, 1e18, 1e308, math.nan, math.inf, 2**31, 2**63, 10**30, 10**400),
    *("\x00", "²", "\ud800", "../x", "auto", [3, 2.5, "a"], {"9" * 5000: {}, "²": {}}),
)
_BYTES = (
    b"",
    b"\x00",
    b"\xff" * 8,
    b"[" * 2000,
    b"9" * 5000,
    b'"',
    b"{",
    b"\n",
    b"NaN",
    b"\xc2\xb2",
)
_WORD = re.compile(rb"[0-9][0-9.,]*|[A-Za-z_]+")
Place = tuple[Any, Any]  # a container, and the key of one of its values


def mutate_bytes(data: bytes, random: Random) -> bytes:
    """A run of bytes removed, repeated, or with others in its place."""
    for _ in range(random.randint(1, 4)):
        start = random.randint(0, len(data))
        stop = min(len(data), start + random.choice((0, 1, 1, 2, 4, 8, 64)))
        put = random.choice((*_BYTES, data[start:stop] * 2, bytes([random.randrange(256)])))
        data = data[:start] + put + data[stop:]
    return data


def mutate_text(data: bytes, random: Random) -> bytes:
    """Text in which numbers or words are others, or lines are doubled, or bytes changed."""
    if random.random() < 0.2:
        return mutate_bytes(data, random)
    if random.random() < 0.2:
        lines = data.split(b"\n")
        return b"\n".join([*lines, random.choice(lines)])
    words = list(_WORD.finditer(data))
    if not words:
        return mutate_bytes(data, random)
    word = random.choice(words)
    put = str(random.choice((*ODD, *alike(len(words))))).encode("utf-8", "replace")
    return data[: word.start()] + put[: random.choice((40, 6000))] + data[word.end() :]


def mutate_header(data: bytes, random: Random) -> bytes:
    """A safetensors file whose header is other JSON, of the length that it says."""
    (length,) = struct.unpack("<Q", data[:8].ljust(8, b"\0"))
    if random.random() < 0.3 or length > len(data):
        return mutate_bytes(data, random)
    header = mutate_json(data[8 : 8 + length], random)
    return struct.pack("<Q", len(header)) + header + data[8 + length :]


def mutate_json(data: bytes, random: Random) -> bytes:
    """JSON with some values changed, moved or removed; bytes that are none are mutated as such."""
    try:
        document = json.loads(data)
        places = list(_places(document))
    except (ValueError, RecursionError):
        return mutate_bytes(data, random)
    if not places or random.random() < 0.05:
        return mutate_bytes(data, random)
    for _ in range(random.choice((1, 1, 2, 3))):
        _change(*random.choice(places), random)
    return json.dumps(document).encode()


def _places(value: Any) -> Iterator[Place]:
    keys: Any = range(len(value)) if isinstance(value, list) else value
    for key in keys if isinstance(value, dict | list) else ():
        yield value, key
        yield from _places(value[key])


def _change(holder: Any, key: Any, random: Random) -> None:
    if isinstance(holder, dict) and key in holder and random.random() < 0.1:
        holder[random.choice(("²", "9" * 5000, "../x", f"{key}s"))] = holder.pop(key)
    elif isinstance(holder, dict) or key < len(holder):
        old = holder.get(key) if isinstance(holder, dict) else holder[key]
        holder[key] = random.choice((*ODD, *alike(old)))


def alike(value: Any) -> tuple[Any, ...]:
    """Values of the same kind."""
    if type(value) is int and abs(value) < 10**15:
        return (-value, value + 1, 2 * value, value // 2, float(value), str(value)) * 3
    if isinstance(value, list):
        return (
            value[:-1],
            value + value[-1:],
            value[::-1],
            [value],
            dict.fromkeys(map(str, value)),
        )
    if isinstance(value, dict):
        return (
            dict.fromkeys(value),
            list(value),
            list(value.values()),
            dict(list(value.items())[1:]),
        )
    return (value, [value], {"a": value})
