"""Folders and texts that a command is given: looked for before anything heavy is imported."""

from collections.abc import Iterable
from pathlib import Path

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
