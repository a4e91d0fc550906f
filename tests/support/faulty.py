"""Conversions in which one call fails or the process is killed: the test's side of fault_server."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SERVER = Path(__file__).with_name("fault_server.py")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run ended: exit status, calls that changed the disk (0 when killed), the function of
    the call that was to fail (empty: there was none), what it said."""

    status: int
    calls: int
    struck: str
    stdout: str
    stderr: str


@dataclass(frozen=True)
class FaultyCommand:
    """The command line in processes that a fault can be planted in."""

    server: "subprocess.Popen[str]"

    def __call__(self, *arguments: object, **fault: Any) -> Ran:
        assert self.server.stdin is not None and self.server.stdout is not None
        job = {"arguments": [str(argument) for argument in arguments], **fault}
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        return Ran(**json.loads(self.server.stdout.readline()))


@contextmanager
def faulty_command() -> Iterator[FaultyCommand]:
    """Starts the server, which takes the seconds of an import, once for many runs."""
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # a pool of threads does not survive a fork
    with subprocess.Popen(
        [sys.executable, SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=one_thread,
    ) as server:
        yield FaultyCommand(server)
        assert server.stdin is not None
        server.stdin.close()
        server.wait(timeout=30)
