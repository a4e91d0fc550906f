"""Folders and texts that a command is given: looked for before anything heavy is imported."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headcount.model.errors import HeadcountError
from headcount.sources.path import check_name, refuse_gguf

BUILTIN = "builtin"  # the prose in this package
_RUN = "give one with config.json, safetensors weights and a tokenizer"


def need_folder(name: str, wanted: str = _RUN) -> None:
    """Raises HeadcountError unless `name` is a folder, and of more than GGUF; it says what is
    `wanted`."""
    check_name(name)
    refuse_gguf(Path(name))
    if not Path(name).is_dir():
        raise HeadcountError(f"{name}: not a folder; {wanted}")


def need_text(name: str, option: str) -> None:
    """Raises HeadcountError unless the text `name`, which `option` was given, is there."""
    if name == BUILTIN:
        return
    check_name(name)
    if not Path(name).exists():
        raise HeadcountError(f"{name}: no such file; {text_wanted(option)}")


def need_files(paths: Iterable[Path | None]) -> None:
    """Raises HeadcountError unless those that were given are there."""
    for path in filter(None, paths):
        check_name(str(path))
        if not path.exists():
            raise HeadcountError(f"{path}: no such file")


def text_wanted(option: str) -> str:
    """What `option` takes."""
    return f"{option} takes a file of UTF-8 text, or {BUILTIN}"


def read_twice(calibration: str | None, evaluation: Mapping[str, Any]) -> tuple[str, ...]:
    """What to warn of where a conversion is fitted to the text, or the pairs, that it is measured
    on; `evaluation` has the options of that."""
    if calibration is None or calibration == BUILTIN:
        return ()
    given = {option: evaluation.get(option) for option in ("text", "pairs")}
    return tuple(
        f"{calibration}: both --calibration and --{option}: figures on what a conversion was fitted"
        " to are better than on other text; give one of the two another file"
        for option, measured in given.items()
        if measured is not None and _is_same(Path(calibration), Path(measured))
    )


def _is_same(one: Path, other: Path) -> bool:
    return one.exists() and other.exists() and one.samefile(other)
