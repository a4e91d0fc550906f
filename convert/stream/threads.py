"""How many threads torch may use while heads are pooled."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """One inside, as before afterwards. Single heads are too small to share out: on a busy machine
    threads that wait for each other took ten times as long."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
