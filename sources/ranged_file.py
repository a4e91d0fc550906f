"""A remote file that is read like one on disk, by ranges of bytes, and never more than so much."""

import os
from collections.abc import Callable

from headcount.model import limits
from headcount.model.errors import InvalidWeightsError

from .hub_requests import Piece

_FIRST, _LONGEST = 2**20, 2**22  # what one request asks for: more each time


class RangedFile:
    """Reads forward through `fetch(start, stop)`, in pieces that grow. What is skipped is not
    fetched. `where` names the file in messages."""

    def __init__(self, fetch: Callable[[int, int], Piece], where: str) -> None:
        self.fetch, self.where = fetch, where
        self.position = self.start = self.fetched = 0
        self.step = _FIRST
        first = fetch(0, _FIRST)
        if first.size is None:
            raise InvalidWeightsError(f"{where}: the server does not tell the size of the file")
        self.size = first.size
        self.data = first.data
        self.fetched = len(first.data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self.position = offset + (self.position if whence == os.SEEK_CUR else 0)
        return self.position

    def read(self, count: int) -> bytes:
        """`count` bytes, fewer at the end of the file. Raises HeadcountError."""
        count = max(0, min(count, self.size - self.position))
        at = self.position - self.start
        if not 0 <= at <= len(self.data) or at + count > len(self.data):
            self._fill(count)
            at = self.position - self.start
        found = self.data[at : at + count]
        self.position += len(found)
        return found

    def _fill(self, count: int) -> None:
        """Puts what is asked for, and some more, into `data`; keeps what is there of it already."""
        at = self.position - self.start
        kept = self.data[at:] if 0 <= at <= len(self.data) else b""
        begin = self.position + len(kept)
        end = min(self.size, max(self.position + count, begin + self.step))
        self.fetched += end - begin
        if self.fetched > limits.REMOTE_GGUF_BYTES.most:
            raise InvalidWeightsError(limits.REMOTE_GGUF_BYTES.refusal(self.where))
        self.step = min(2 * self.step, _LONGEST)
        self.start, self.data = self.position, kept + self.fetch(begin, end).data
