"""The source's files: ranges of bytes for copies, tensors for what is computed."""

import mmap
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from threading import Lock
from types import TracebackType

import torch

from headcount.model.errors import SourceChangedError
from headcount.sources.identity import FileIdentity, ReadFile, check_identity
from headcount.sources.json_file import open_regular
from headcount.sources.safetensors import FileHeader, TensorInfo

from .descriptors import read_at
from .hashing import digest_of_bytes
from .os_failures import reading

_PIECE = 2**20  # bytes
DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


class SourceReader:
    """Opens the files that `headers` were read from on demand, for several threads, and no others
    that have taken their names; and `others`, by what their tensors call them. A tensor that was
    read with `keep` is handed out once more without a second read."""

    def __init__(
        self, headers: Iterable[FileHeader], others: Mapping[str, ReadFile] | None = None
    ) -> None:
        found = {h.path.name: h.read for h in headers if h.read is not None}
        self._files = {**found, **(others or {})}
        self._opening = Lock()
        self._descriptors: dict[str, int] = {}
        self._kept: dict[str, torch.Tensor] = {}
        self._digests: dict[tuple[str, str], str] = {}

    def __enter__(self) -> "SourceReader":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._check()
        finally:
            self._close()

    def close(self) -> None:
        """Closes all files, which nobody may be reading; a later read opens them again. Raises
        SourceChangedError if one was written to meanwhile."""
        try:
            self._check()
        finally:
            self._close()

    def _check(self) -> None:
        for file, descriptor in self._descriptors.items():
            self._check_one(file, descriptor)

    def _check_one(self, file: str, descriptor: int) -> None:
        read = self._files[file]
        with reading(read.path):
            check_identity(read.path, FileIdentity.of(descriptor), read.identity)

    def _close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.popitem()[1])

    def path(self, file: str) -> Path:
        """Where a file of that name lies."""
        return self._files[file].path

    def descriptor(self, file: str) -> int:
        """A read-only descriptor of a file; the reader closes it. Raises SourceChangedError unless
        it is the one that the header was read from."""
        with self._opening:
            if file not in self._descriptors:
                descriptor = open_regular(self.path(file))
                try:
                    self._check_one(file, descriptor)
                except BaseException:
                    os.close(descriptor)
                    raise
                self._descriptors[file] = descriptor
            return self._descriptors[file]

    def tensor(self, info: TensorInfo, *, keep: bool = False) -> torch.Tensor:
        """The values of a tensor of floats. Raises HeadcountError."""
        found = self._kept.pop(info.name, None)
        if found is None:
            data = self._bytes(info)
            self.saw(info, digest_of_bytes(memoryview(data)))
            found = torch.frombuffer(data, dtype=DTYPES[info.dtype]).view(info.shape)
        if keep:
            self._kept[info.name] = found
        return found

    def saw(self, info: TensorInfo, digest: str) -> None:
        """The digest of all bytes of a tensor. Raises SourceChangedError if it had another one
        before, which no look at a file's times may show."""
        if self._digests.setdefault((info.file, info.name), digest) != digest:
            raise SourceChangedError(
                f"{self.path(info.file)}: tensor {info.name!r} reads otherwise than before: it was"
                " written to, or the disk fails; start again"
            )

    def digest(self, info: TensorInfo) -> str | None:
        """The digest of a tensor that was read as a whole; None of any other."""
        return self._digests.get((info.file, info.name))

    def _bytes(self, info: TensorInfo) -> mmap.mmap:
        """Pages of its own, which go back to the system at once: a heap would keep holes."""
        data = mmap.mmap(-1, info.nbytes)
        self.read_into(info, memoryview(data), 0)
        return data

    def pieces(self, info: TensorInfo) -> Iterator[memoryview]:
        """The bytes of a tensor of any type, in pieces that are good until the next one."""
        block = memoryview(bytearray(min(_PIECE, info.nbytes)))
        for start in range(0, info.nbytes, _PIECE):
            piece = block[: info.nbytes - start]
            self.read_into(info, piece, start)
            yield piece

    def forget(self) -> None:
        """Drops the tensors that were kept."""
        self._kept.clear()

    def read_into(self, info: TensorInfo, view: memoryview, start: int) -> None:
        """Fills `view` with the tensor's bytes from `start` on. Raises HeadcountError."""
        descriptor, done, path = self.descriptor(info.file), 0, self.path(info.file)
        with reading(path):
            while done < len(view):
                count = read_at(descriptor, view[done:], info.offsets[0] + start + done)
                if not count:
                    raise SourceChangedError(f"{path}: became shorter; start again")
                done += count
