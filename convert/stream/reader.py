"""The source's files: ranges of bytes for copies, tensors for what is computed."""

import mmap
import os
from pathlib import Path
from threading import Lock
from types import TracebackType

import torch

from headcount.sources.json_file import open_regular
from headcount.sources.safetensors import TensorInfo

from ..plan.errors import SourceChangedError
from .descriptors import read_at
from .os_failures import reading

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class SourceReader:
    """Opens files of one folder on demand, for several threads. A tensor that was read with `keep`
    is handed out once more without a second read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._opening = Lock()
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
        self.close()

    def close(self) -> None:
        """Closes all files, which nobody may be reading; a later read opens them again."""
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def descriptor(self, file: str) -> int:
        """A read-only descriptor of a file of the folder; the reader closes it."""
        with self._opening:
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
        self.read_into(info, memoryview(data), 0)
        return data

    def read_into(self, info: TensorInfo, view: memoryview, start: int) -> None:
        """Fills `view` with the tensor's bytes from `start` on. Raises HeadcountError."""
        descriptor, done = self.descriptor(info.file), 0
        with reading(self.folder / info.file):
            while done < len(view):
                count = read_at(descriptor, view[done:], info.offsets[0] + start + done)
                if not count:
                    raise SourceChangedError(f"{self.folder / info.file}: became shorter")
                done += count
