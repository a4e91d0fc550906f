"""The source's files: ranges of bytes for copies, tensors for what is computed."""

import mmap
import os
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import torch

from headcount.audit.source.json_file import open_regular
from headcount.audit.source.safetensors import TensorInfo

from ..plan.errors import SourceChangedError
from .failure import reading

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class SourceReader:
    """Opens files of one folder on demand. A tensor that was read with `keep` is handed out once
    more without a second read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors: dict[str, int] = {}
        self._kept: dict[str, torch.Tensor] = {}

    def __enter__(self) -> "SourceReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close(tuple(self._descriptors))

    def close(self, files: Iterable[str]) -> None:
        """Closes `files`; a later read opens them again."""
        for file in files:
            descriptor = self._descriptors.pop(file, None)
            if descriptor is not None:
                os.close(descriptor)

    def descriptor(self, file: str) -> int:
        """A read-only descriptor of a file of the folder; the reader closes it."""
        if file not in self._descriptors:
            self._descriptors[file] = open_regular(self.folder / file)
        return self._descriptors[file]

    def tensor(self, info: TensorInfo, *, keep: bool = False) -> torch.Tensor:
        """The values of a tensor of floats. Raises HeadcountError."""
        found = self._kept.pop(info.name, None)
        if found is None:
            found = torch.frombuffer(self._bytes(info), dtype=DTYPES[info.dtype])
            found = found.view(info.shape)
        if keep:
            self._kept[info.name] = found
        return found

    def _bytes(self, info: TensorInfo) -> mmap.mmap:
        """Pages of its own, which go back to the system at once: a heap would keep holes."""
        data = mmap.mmap(-1, info.nbytes)
        view, start, done = memoryview(data), info.offsets[0], 0
        with (
            reading(self.folder / info.file),
            os.fdopen(self.descriptor(info.file), "rb", buffering=0, closefd=False) as file,
        ):
            file.seek(start)
            while done < len(data):
                count = file.readinto(view[done:])
                if not count:
                    raise SourceChangedError(f"{self.folder / info.file}: became shorter")
                done += count
        return data
