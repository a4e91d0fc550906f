"""The light half of the package as one JSON file of texts: what Pyodide is to run. It needs no
more than the standard library."""

import json
from collections.abc import Iterator
from pathlib import Path

import headcount

_PACKAGE = Path(headcount.__file__).parent
_ROOMS = ("arch", "audit", "library", "model", "plan", "report", "sources")
_FILES = (
    *("__init__.py", "running/__init__.py", "running/extra.py"),
    *("page/__init__.py", "page/answers.py", "page/views.py"),
)


def light_half() -> str:
    """An object of JSON: the path of each file below the folder of the package -> its text."""
    texts = {
        f"headcount/{file.relative_to(_PACKAGE).as_posix()}": file.read_text(encoding="utf-8")
        for file in _files()
    }
    return json.dumps(texts, ensure_ascii=False)


def _files() -> Iterator[Path]:
    """In an order that does not depend on the disk."""
    yield from (_PACKAGE / name for name in _FILES)
    for room in _ROOMS:
        files = (path for path in (_PACKAGE / room).rglob("*") if path.is_file())
        yield from sorted(path for path in files if path.suffix != ".pyc")
