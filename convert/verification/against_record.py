"""An output against its own record: every file and tensor by its digest, no source needed."""

import os
from collections.abc import Collection, Iterator
from pathlib import Path

from headcount.model.errors import InvalidWeightsError
from headcount.sources.identity import FileIdentity, check_identity
from headcount.sources.json_file import open_regular
from headcount.sources.safetensors import FileHeader, read_header

from ..plan.existing import DIGEST
from ..plan.side_files import RECORD, shown_name
from ..stream.descriptors import read_at
from ..stream.hashing import Digester, digest_of
from ..stream.os_failures import reading
from ..stream.reader import SourceReader
from .findings import Verified
from .recorded import Recorded

_BLOCK = 2**18
_WRITTEN = "is not what was written"


def check_record(
    recorded: Recorded, chosen: Collection[str] | None, verified: Verified
) -> tuple[FileHeader, ...]:
    """Adds what differs to `verified`, and returns the headers of the files that can be read.
    `chosen`: only these tensors are read, and of files of weights only headers and sizes; None: all
    is. Raises HeadcountError for a file that the system cannot read."""
    headers: list[FileHeader] = []
    with reading(recorded.folder):
        for name in sorted(recorded.manifest):
            headers += _file(recorded, recorded.folder / name, chosen, verified)
        beside = {path.name for path in recorded.folder.iterdir()} - {RECORD, *recorded.manifest}
    _lost(recorded, headers, verified)
    for name in sorted(beside):
        verified.differs(shown_name(name), "is not in the record")
    return tuple(headers)


def _file(
    recorded: Recorded, path: Path, chosen: Collection[str] | None, verified: Verified
) -> Iterator[FileHeader]:
    """The header of a file of the record, if it is one of weights that can be read."""
    entry = recorded.manifest[path.name]
    verified.count("files")
    if not path.exists():
        verified.differs(path.name, "is missing")
        return
    size = path.stat().st_size
    if size != entry["bytes"]:
        verified.differs(path.name, f"has {size:,} bytes, not {entry['bytes']:,}")
    if path.name.endswith(".safetensors"):
        yield from _weights(recorded, path, chosen, verified)
    elif digest_of(path) != entry[DIGEST]:
        verified.differs(path.name, _WRITTEN)


def _weights(
    recorded: Recorded, path: Path, chosen: Collection[str] | None, verified: Verified
) -> Iterator[FileHeader]:
    try:
        header = read_header(path)
    except InvalidWeightsError as error:
        verified.differs(path.name, str(error).removeprefix(f"{path}: "))
        return
    yield header
    if chosen is not None:
        digests = dict(_some(header, chosen))
        _compare(recorded, digests, verified)
        return
    whole, digests = _all(header)
    differs = _compare(recorded, digests, verified)
    if whole != recorded.manifest[path.name][DIGEST] and not differs:
        what = "its header is not what was written" if recorded.tensors else _WRITTEN
        verified.differs(path.name, what)


def _compare(recorded: Recorded, digests: dict[str, str], verified: Verified) -> bool:
    """Whether any tensor is another one."""
    differs = False
    for name, digest in digests.items() if recorded.tensors else ():
        verified.count("tensors")
        if digest != recorded.tensors.get(name):
            known = name in recorded.tensors
            verified.differs(name, _WRITTEN if known else "is not in the record")
            differs = True
    return differs


def _all(header: FileHeader) -> tuple[str, dict[str, str]]:
    """The digests of a file, and of each of its tensors, by one pass over it."""
    assert header.read is not None
    digester = Digester((header.data_start, *(tensor.nbytes for tensor in header.tensors)))
    descriptor = open_regular(header.path)
    try:
        with reading(header.path):
            check_identity(header.path, FileIdentity.of(descriptor), header.read.identity)
            block, position = memoryview(bytearray(_BLOCK)), 0
            while count := read_at(descriptor, block, position):
                digester.update(block[:count])
                position += count
    finally:
        os.close(descriptor)
    names = (tensor.name for tensor in header.tensors)
    return digester.whole(), dict(zip(names, digester.parts()[1:], strict=True))


def _some(header: FileHeader, chosen: Collection[str]) -> Iterator[tuple[str, str]]:
    with SourceReader((header,)) as reader:
        for tensor in header.tensors:
            if tensor.name in chosen:
                digester = Digester()
                for piece in reader.pieces(tensor):
                    digester.update(piece)
                yield tensor.name, digester.whole()


def _lost(recorded: Recorded, headers: list[FileHeader], verified: Verified) -> None:
    """Tensors of the record that no file holds: one line, since the file is named already."""
    held = {tensor.name for header in headers for tensor in header.tensors}
    lost = sorted(recorded.tensors.keys() - held)
    if lost:
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        verified.differs(", ".join(lost[:3]) + more, "in no file that can be read")
