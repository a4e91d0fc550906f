"""Pairs of a source and a target, from a file of theirs."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError

from ..text import Text


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """`source` is text, or the .npy file of what a speech encoder reads; `target` None: what the
    original says itself."""

    source: str | Path
    target: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """All of a file; `sha256` is that of its bytes."""

    name: str
    pairs: tuple[Pair, ...]
    sha256: str


def pairs_of_lines(text: Text) -> Pairs:
    """Each line with any words is a source, of which the original says the target itself."""
    lines = (line for line in text.content.splitlines() if line.strip())
    pairs = tuple(Pair(source=line) for line in lines)
    return Pairs(name=text.name, pairs=pairs, sha256=text.sha256)


def read_pairs(path: Path, option: str = "--pairs") -> Pairs:
    """Of a .tsv file a pair a line, else JSON lines with `source` (or `features`, a .npy file
    beside it) and `target`. `option` named it. Raises HeadcountError."""
    try:
        return _parsed(path)
    except HeadcountError as error:
        raise HeadcountError(f"{option} {path}: {error}") from None


def _parsed(path: Path) -> Pairs:
    try:
        content = path.read_bytes()
        text = content.decode("utf-8")
    except OSError as error:
        raise HeadcountError(f"cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise HeadcountError(f"not UTF-8 (byte {error.start:,})") from None
    read = _by_tabs if path.suffix == ".tsv" else _by_json
    numbered = ((n, line) for n, line in enumerate(text.splitlines(), 1) if line.strip())
    pairs = tuple(read(path, n, line) for n, line in numbered)
    if not pairs:
        raise HeadcountError("holds no pair")
    return Pairs(name=str(path), pairs=pairs, sha256=sha256(content).hexdigest())


def _by_tabs(path: Path, number: int, line: str) -> Pair:
    source, tab, target = line.partition("\t")
    if not tab or "\t" in target:
        raise HeadcountError(
            f"line {number} has {line.count(chr(9))} tabs: a source, one tab and a target"
        )
    return Pair(source=source, target=target)


def _by_json(path: Path, number: int, line: str) -> Pair:
    try:
        found: Any = json.loads(line)
    except ValueError:
        found = None
    kept = dict(_of_text(found)) if isinstance(found, dict) else {}
    if "target" not in kept or ("source" in kept) == ("features" in kept):
        raise HeadcountError(
            f'line {number} is no {{"source": text, "target": text}}, nor one with'
            ' "features", a .npy file, in place of "source" (or name the file .tsv: source, tab,'
            " target)"
        )
    source = kept.get("source")
    return Pair(
        source=path.parent / kept["features"] if source is None else source, target=kept["target"]
    )


def _of_text(found: dict[str, Any]) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, value in found.items() if isinstance(value, str))
