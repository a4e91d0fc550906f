"""A model in GGUF: one file, or a set of files split by llama.cpp's gguf-split."""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidWeightsError

from .checkpoint import Checkpoint, inside
from .found import FoundModel, SourceKind
from .gguf import GgufFile, read_gguf

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.ASCII)
# Files that lie beside a model: a projector (mmproj), and what quantising was guided by.
_BESIDE = ("mmproj", "imatrix")


def read_gguf_source(path: Path) -> FoundModel:
    """The model of a GGUF file and of the rest of its set. Raises HeadcountError."""
    first = read_gguf(path)
    names = siblings_of(path, first)
    here = [name for name in names if (path.parent / name).exists()]
    files = {name: read_gguf(inside(path.parent, name)) for name in here if name != path.name}
    return gguf_source(path, {**dict.fromkeys(names), **files, path.name: first})


def siblings_of(path: Path, first: GgufFile) -> list[str]:
    """The names of all files of the set that `path` belongs to, which lie beside it.

    Raises InvalidWeightsError if its name does not say where in the set it stands.
    """
    count = first.metadata.get("split.count", 1)
    name = _SPLIT.fullmatch(path.name)
    if type(count) is not int or not 0 <= count < 2**16:
        raise InvalidWeightsError(f"{path}: split.count {count!r} is not valid")
    if count < 2:
        return [path.name]
    if name is None or int(name[3]) != count:
        raise InvalidWeightsError(
            f"{path}: is one of {count} files, which must be named like"
            f" NAME-00001-of-{count:05}.gguf"
        )
    return [f"{name[1]}-{i + 1:05}-of-{count:05}.gguf" for i in range(count)]


def models_of(files: Iterable[str]) -> list[str]:
    """The first file of each GGUF model among `files`; what lies beside a model is left out,
    unless there is nothing else."""
    names = sorted(name for name in files if name.endswith(".gguf"))
    firsts: dict[tuple[str, str], str] = {}
    for name in names:
        part = _SPLIT.fullmatch(name)
        firsts.setdefault((part[1], part[3]) if part else (name, ""), name)
    found = list(firsts.values())
    return [name for name in found if not _lies_beside(name)] or found


def _lies_beside(name: str) -> bool:
    return any(word in name.rpartition("/")[2].lower() for word in _BESIDE)


def gguf_source(
    path: Path,
    files: Mapping[str, GgufFile | None],
    kind: SourceKind = "file",
    revision: str | None = None,
) -> FoundModel:
    """The model that `files`, by name, hold together; None stands for one that is missing.

    Raises InvalidWeightsError if a tensor stands in two of them, or hardly any is there.
    """
    present = [file for file in files.values() if file is not None]
    metadata: dict[str, Any] = {k: v for f in reversed(present) for k, v in f.metadata.items()}
    tensors = {t.name: t for file in present for t in file.header.tensors}
    if len(tensors) != sum(len(file.header.tensors) for file in present):
        raise InvalidWeightsError(f"{path}: a tensor stands in two files of its set")
    missing = [name for name, file in files.items() if file is None]
    if len(missing) > limits.GGUF_MISSING_FILES.most:
        raise InvalidWeightsError(
            f"{path}: is one of {len(files):,} files, of which {len(missing):,} are not there, such"
            f" as {missing[0]}"
        )
    return FoundModel(
        kind=kind,
        id=str(path),
        where=path.name,
        config=None,
        gguf=metadata,
        checkpoint=Checkpoint(
            folder=path.parent,
            files=tuple(file.header for file in present),
            tensors=tensors,
            missing=dict.fromkeys(missing, ()),
            unlisted=(),
            index=None,
            total_size=None,
            format="gguf",
        ),
        revision=revision,
    )
