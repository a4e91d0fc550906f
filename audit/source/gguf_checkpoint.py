"""A model in GGUF: one file, or a set of files split by llama.cpp's gguf-split."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..errors import InvalidWeightsError
from .checkpoint import Checkpoint
from .found import Source
from .gguf import GgufFile, read_gguf

_SPLIT = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf")


def read_gguf_source(path: Path) -> Source:
    """The model of a GGUF file and of the rest of its set. Raises HeadcountError."""
    first = read_gguf(path)
    count = first.metadata.get("split.count", 1)
    name = _SPLIT.fullmatch(path.name)
    if type(count) is not int or not 0 <= count < 2**16:
        raise InvalidWeightsError(f"{path}: split.count {count!r} is not valid")
    if count < 2:
        return _source(path, first.metadata, (first,), ())
    if name is None or int(name[3]) != count:
        raise InvalidWeightsError(
            f"{path}: is one of {count} files, which must be named like"
            f" NAME-00001-of-{count:05}.gguf"
        )
    paths = [path.with_name(f"{name[1]}-{i + 1:05}-of-{count:05}.gguf") for i in range(count)]
    files = tuple(first if p == path else read_gguf(p) for p in paths if p.exists())
    metadata = {key: value for file in reversed(files) for key, value in file.metadata.items()}
    return _source(path, metadata, files, tuple(p.name for p in paths if not p.exists()))


def _source(
    path: Path, metadata: Mapping[str, Any], files: tuple[GgufFile, ...], missing: tuple[str, ...]
) -> Source:
    tensors = {t.name: t for file in files for t in file.header.tensors}
    if len(tensors) != sum(len(file.header.tensors) for file in files):
        raise InvalidWeightsError(f"{path}: a tensor stands in two files of its set")
    return Source(
        kind="file",
        id=str(path),
        where=path.name,
        config=None,
        gguf=metadata,
        checkpoint=Checkpoint(
            folder=path.parent,
            files=tuple(file.header for file in files),
            tensors=tensors,
            missing=dict.fromkeys(missing, ()),
            unlisted=(),
            index=None,
            total_size=None,
            format="gguf",
        ),
    )
