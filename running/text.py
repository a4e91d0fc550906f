"""The text to measure on: a UTF-8 file of the user's, or the prose sample in the package."""

import hashlib
import os
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.sources.json_file import open_bytes

SAMPLE_NAME = "sample"


@dataclass(frozen=True, kw_only=True, slots=True)
class Text:
    """`content` as decoded, and the SHA-256 of the bytes that it was decoded from."""

    name: str
    content: str
    sha256: str


def read_text(path: Path | None) -> Text:
    """The file at `path`, or the packaged sample for None. Raises HeadcountError."""
    if path is None:
        return packaged_text(__package__, SAMPLE_NAME)
    with open_bytes(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > limits.TEXT_BYTES.most:
            raise HeadcountError(limits.TEXT_BYTES.refusal(path, size))
        data = file.read()
    return _decode(data, str(path))


def packaged_text(package: str, name: str) -> Text:
    """The prose `sample.txt` that lies in `package`, under the name that reports give it."""
    return _decode(resources.files(package).joinpath("sample.txt").read_bytes(), name)


def _decode(data: bytes, name: str) -> Text:
    try:
        content = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadcountError(
            f"{name}: not UTF-8 (byte {error.start:,}): save the text as UTF-8"
        ) from error
    if not content.strip():
        raise HeadcountError(f"{name}: holds no text")
    return Text(name=name, content=content, sha256=hashlib.sha256(data).hexdigest())
