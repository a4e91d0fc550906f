"""What the user's MODEL argument means: a path, a catalogue alias, or a Hub id."""

from collections.abc import Callable
from pathlib import Path

from headcount.model.errors import HeadcountError

from .catalogue import find_row, read_entry, unknown_model
from .found import FoundModel

_MODEL_FILES = ("config.json", "model.safetensors", "model.safetensors.index.json")
_SUFFIXES = (".json", ".safetensors", ".gguf", ".bin", ".pt", ".pth")


def resolve(target: str, meanwhile: Callable[[], None] | None = None) -> FoundModel:
    """The model that `target` names. Raises HeadcountError.

    In order: a path that is spelled as one or that holds a model, as in transformers; a catalogue
    id or alias, whatever the case; `org/name[@revision]` or `org/name/FILE.gguf[@revision]` of the
    Hub. `-` is a config.json on standard input. `meanwhile` is called while the Hub's first answer
    is awaited.
    """
    try:
        return _resolve(target, meanwhile)
    except OSError as error:
        reason = error.strerror or str(error)
        raise HeadcountError(f"{target[:200]}: cannot be read: {reason}") from error


def _resolve(target: str, meanwhile: Callable[[], None] | None) -> FoundModel:
    if target == "-":
        from .standard_input import read_standard_input

        return read_standard_input()
    if not target:
        raise unknown_model(target)
    path = _expanded(target)
    if _is_gguf_of_hub(target, path):
        from .hub import read_hub

        return read_hub(target, meanwhile)
    if _is_spelled_as_path(target) or _holds_model(path):
        return _read_path(path)
    row = find_row(target)
    if row is not None:
        entry = read_entry(row, target)
        where = f"catalogue ({entry.id})"
        return FoundModel(
            kind="catalogue", id=entry.id, where=where, config=entry.config, entry=entry
        )
    if path.exists():
        return _read_path(path)
    if target.count("/") == 1 and all(target.partition("@")[0].split("/")):
        from .hub import read_hub

        return read_hub(target, meanwhile)
    raise unknown_model(target)


def _is_gguf_of_hub(target: str, path: Path) -> bool:
    """`org/name/FILE.gguf`, unless something here has the name of its first folder."""
    if ".gguf" not in target or target.count("/") < 2 or Path(target.partition("/")[0]).exists():
        return False
    from .hub_names import is_file_of_hub

    return is_file_of_hub(target) and not path.exists()


def is_hub_id(target: str) -> bool:
    """Whether `target` is spelled as `org/name[@revision]`, and nothing on this disk has that name.

    A name of the catalogue counts, where the Hub has a repository of that name.
    """
    from .hub import is_repository

    if _is_spelled_as_path(target) or Path(target).exists():
        return False
    return is_repository(target.partition("@")[0])


def _expanded(target: str) -> Path:
    try:
        return Path(target).expanduser()
    except RuntimeError as error:
        user = target.partition("/")[0]
        raise HeadcountError(f"{target}: the home directory of {user} is not known") from error


def _read_path(path: Path) -> FoundModel:
    """Readers are imported when they are needed: a name of the catalogue needs none."""
    from .path import read_path

    return read_path(path)


def _is_spelled_as_path(target: str) -> bool:
    return target.startswith((".", "/", "~")) or target.endswith((*_SUFFIXES, "/"))


def _holds_model(path: Path) -> bool:
    return path.is_file() or any((path / name).exists() for name in _MODEL_FILES)
