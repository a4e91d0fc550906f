"""What a server sends, read for so long as it comes fast enough.

A socket's own time-out knows only the wait for the next byte: a server that sends one a second
would be listened to for ever.
"""

import http.client
import io
from socket import socket
from time import monotonic
from typing import Any

from headcount.model import limits


class PacedReader(io.RawIOBase):
    """Reads from `raw`, the file of `connection`, at most `most` bytes. Raises TimeoutError, and
    ConnectionError for more."""

    def __init__(self, raw: Any, connection: socket, most: int) -> None:
        self.raw, self.connection, self.most = raw, connection, most
        self.began = monotonic()
        self.received = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        left = self.began + limits.ANSWER_SECONDS.most - monotonic()
        self.connection.settimeout(max(0.01, min(limits.READ_SECONDS.most, left)))
        try:
            count: int | None = self.raw.readinto(buffer)
        except TimeoutError:
            self._check()
            raise
        self.received += count or 0
        self._check()
        return count

    def _check(self) -> None:
        seconds = monotonic() - self.began
        if self.received > self.most:
            raise ConnectionError(f"sends more than {self.most:,} bytes")
        too_slow = (
            seconds > limits.SLOW_SECONDS.most and self.received < limits.SLOWEST.most * seconds
        )
        if too_slow or seconds > limits.ANSWER_SECONDS.most:
            raise TimeoutError(f"sends too slowly: {self.received:,} bytes in {seconds:.0f} s")

    def close(self) -> None:
        self.raw.close()
        super().close()


class PacedResponse(http.client.HTTPResponse):
    """An answer, from its status line on to the end of a body of at most `most_body` bytes."""

    def __init__(self, connection: socket, *args: Any, most_body: int = 0, **kwargs: Any) -> None:
        super().__init__(connection, *args, **kwargs)
        raw = self.fp.detach()
        self.fp = io.BufferedReader(
            PacedReader(raw, connection, most_body + limits.ANSWER_HEAD_BYTES.most)
        )
