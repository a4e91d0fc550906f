"""Folders and texts that a command is given: looked for before anything heavy is imported."""

from pathlib import Path

from headcount.model.errors import HeadcountError
from headcount.sources.path import check_name

BUILTIN = "builtin"  # the prose in this package
_RUN = "give one with config.json, safetensors weights and a tokenizer"


def need_folder(name: str, wanted: str = _RUN) -> None:
    """Raises HeadcountError unless `name` is a folder; it says what is `wanted`."""
    check_name(name)
    if not Path(name).is_dir():
        raise HeadcountError(f"{name}: not a folder; {wanted}")


def need_text(name: str, option: str) -> None:
    """Raises HeadcountError unless the text `name`, which `option` was given, is there."""
    if name == BUILTIN:
        return
    check_name(name)
    if not Path(name).exists():
        raise HeadcountError(f"{name}: no such file; {text_wanted(option)}")


def text_wanted(option: str) -> str:
    """What `option` takes."""
    return f"{option} takes a file of UTF-8 text, or {BUILTIN}"
