"""The test's side of fault_server.py: builds the shim, starts the server, asks for runs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SHIM = HERE / "fault_shim.c"
SERVER = HERE / "fault_server.py"
BOARD_BYTES = 4 * 2**20  # more than the shim's struct takes


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What happens to the `at`-th call of `kind`, counted from 1."""

    kind: str
    at: int
    action: str
    number: int = 0
    failing: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a run ended, whether the chosen call was made, how many calls of each kind there were,
    and, without a fault, each as [kind, path]; `strays` are processes that outlived it."""

    status: int
    stdout: str
    stderr: str
    struck: bool
    counts: Mapping[str, int]
    strays: int
    calls: Sequence[Sequence[str]] = field(repr=False)


@dataclass(frozen=True)
class FaultyRuns:
    """The command line, with one call of the C library that goes wrong."""

    server: "subprocess.Popen[str]"

    def __call__(
        self, root: Path, cwd: Path, arguments: Sequence[str], fault: Fault | None = None
    ) -> Ran:
        assert self.server.stdin is not None and self.server.stdout is not None
        job: dict[str, Any] = {"root": str(root), "cwd": str(cwd), "arguments": list(arguments)}
        job["fault"] = None if fault is None else vars(fault)
        self.server.stdin.write(json.dumps(job) + "\n")
        self.server.stdin.flush()
        return Ran(**json.loads(self.server.stdout.readline()))


def missing() -> str:
    """What this machine lacks for such runs; empty: nothing."""
    if sys.platform != "linux":
        return "Linux"
    return "" if shutil.which("cc") else "a C compiler (cc)"


@contextmanager
def faulty_runs(temporary: Path) -> Iterator[FaultyRuns]:
    """Starts the server; `temporary` is the folder of temporary files of what it runs."""
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        library, board = Path(folder, "shim.so"), Path(folder, "board")
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, SHIM, "-ldl"], check=True)
        board.write_bytes(bytes(BOARD_BYTES))
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "HEADCOUNT_FAULT_BOARD": str(board),
            "TMPDIR": str(temporary),
            "TORCHINDUCTOR_CACHE_DIR": folder,  # torch makes it there when it is imported
            "OMP_NUM_THREADS": "1",  # a pool of threads does not survive a fork
        }
        with subprocess.Popen(
            [sys.executable, SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as server:
            yield FaultyRuns(server)
            assert server.stdin is not None
            server.stdin.close()
            server.wait(timeout=30)
