"""The page's folder: all of it, or what was there before."""

import json
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from headcount.convert.plan.leftovers import leftovers, own_folder, real_place
from headcount.convert.stream.exchange import exchange
from headcount.convert.stream.os_failures import writing
from headcount.model.errors import HeadcountError
from headcount.model.version import __version__
from headcount.running.passing_folder import passing_folder, remove_folder
from headcount.running.signals import held_signals

from .choices import choices
from .light_half import light_half
from .notices import notices
from .runtime import VERSION, pyodide_files

_ASSETS = Path(__file__).with_name("assets")
_FOR_BROWSERS = (
    *("index.html", "icon.svg", "page.css", "page.js", "controls.js", "answer.js", "charts.js"),
    *("elements.js", "worker.js"),
)
_RECORD = "headcount-page.json"


def write_page(
    target: Path, *, pyodide: Path | None, overwrite: bool, say: Callable[[str], None]
) -> Mapping[str, int]:
    """Writes the page to the new folder `target`, or in place of an earlier page if `overwrite`;
    the bytes of its files by their names. Raises HeadcountError, and WriteError."""
    with writing(target, 0):
        _check_target(target, overwrite)
    files = dict(_own_files())
    for name, data in pyodide_files(pyodide, say).items():
        files[f"pyodide/{name}"] = data
    with writing(target, sum(map(len, files.values()))):
        _write(real_place(target), files)
    return {name: len(data) for name, data in files.items()}


def _own_files() -> Iterator[tuple[str, bytes]]:
    yield from ((name, (_ASSETS / name).read_bytes()) for name in _FOR_BROWSERS)
    yield "headcount.json", light_half().encode()
    yield "choices.json", json.dumps(choices(), ensure_ascii=False).encode()
    yield "NOTICES.txt", notices().encode()
    yield _RECORD, json.dumps({"headcount": __version__, "pyodide": VERSION}).encode()


def _check_target(target: Path, overwrite: bool) -> None:
    """Raises HeadcountError unless `target` may be made, or is a page that may be replaced."""
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise HeadcountError(f"{target}: exists and is not a folder; name another place")
    if not target.parent.is_dir():
        raise HeadcountError(f"{target}: there is no folder {target.parent}; make it first")
    if not target.is_dir() or not any(target.iterdir()):
        return
    if not overwrite:
        raise HeadcountError(
            f"{target}: exists and is not empty; name another folder, or replace the page in it"
            " with --overwrite"
        )
    known = {*_FOR_BROWSERS, "pyodide", "headcount.json", "choices.json", "NOTICES.txt", _RECORD}
    names = {path.name for path in target.iterdir()}
    if _RECORD not in names or not names <= known:
        other = ", ".join(sorted(names - known)[:5]) or "no headcount-page.json"
        raise HeadcountError(
            f"{target}: is no page of headcount alone ({other}): --overwrite replaces nothing else"
        )


def _write(target: Path, files: Mapping[str, bytes]) -> None:
    for left in leftovers(target, "page"):
        remove_folder(left)
    with passing_folder(own_folder(target, "page")) as new:
        for name, data in files.items():
            path = new / "page" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        with held_signals():
            _name(new / "page", target)


def _name(page: Path, target: Path) -> None:
    """Gives the page its name; what has it now goes where the page was, and with that."""
    if not target.exists():
        page.rename(target)
    elif not exchange(page, target):
        old = page.with_name("old")
        target.rename(old)
        try:
            page.rename(target)
        except BaseException:
            old.rename(target)
            raise
