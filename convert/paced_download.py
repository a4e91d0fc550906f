"""Downloads of huggingface_hub, which are given up when they come too slowly.

By itself it waits ten seconds for the next bytes, and for ever for one a second.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from headcount.model import limits
from headcount.sources.connection.http_client import UnreachableError


@contextmanager
def paced_downloads() -> Iterator[None]:
    """Inside, a body that comes with less than the least rate is an UnreachableError."""
    from huggingface_hub import get_session

    session: Any = get_session()  # of httpx, or the library that took its place
    before = session.event_hooks
    session.event_hooks = {**before, "response": [*before["response"], _pace]}
    try:
        yield
    finally:
        session.event_hooks = before


def _pace(response: Any) -> None:
    library: Any = sys.modules[type(response).__module__.partition(".")[0]]
    plain = response.stream

    class PacedStream(library.SyncByteStream):  # type: ignore[misc] # the library looks at the base
        def __iter__(self) -> Iterator[bytes]:
            return _paced(plain)

        def close(self) -> None:
            plain.close()

    response.stream = PacedStream()


def _paced(pieces: Any) -> Iterator[bytes]:
    """`pieces` as they come. Raises UnreachableError."""
    began, received = monotonic(), 0
    for piece in pieces:
        received += len(piece)
        seconds = monotonic() - began
        slow = seconds > limits.SLOW_SECONDS.most
        if slow and received < limits.SLOWEST.most * seconds:
            raise UnreachableError(f"it comes too slowly: {received:,} bytes in {seconds:.0f} s")
        yield piece
