"""Runs the command line again and again in forked processes, each with one call of the C library
that goes wrong.

A program of its own, with fault_shim.c preloaded. Reads JSON lines {"root", "cwd", "arguments",
"fault"} and answers {"status", "stdout", "stderr", "struck", "counts", "calls", "strays"}: whether
the chosen call was made, how many of each kind there were, each as [kind, path below root], and how
many processes outlived the command. `fault` is null or {"kind", "at", "action", "number",
"failing"}: what happens to the `at`-th call of a kind that touches files below `root`. `number` is
an errno or a signal, `failing` names the kinds that fail from then on.
"""

import atexit
import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import os
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

# In the order of the enums in fault_shim.c.
KINDS = (
    *("open", "create", "read", "write", "copy", "fsync", "rename", "mkdir", "link", "unlink"),
    *("rmdir", "truncate", "list", "stat", "chmod"),
)
ACTIONS = ("nothing", "fail", "fail from here on", "shorten", "signal")
NAMED, LOGGED = 232, 8192
PATIENCE = 120  # seconds that a command may take
PR_SET_CHILD_SUBREAPER = 36


class Entry(ctypes.Structure):
    _fields_ = (("kind", ctypes.c_int32), ("pid", ctypes.c_int32), ("path", ctypes.c_char * NAMED))


class Board(ctypes.Structure):
    """What the shim shares with this program."""

    _fields_ = (
        *((n, ctypes.c_int32) for n in ("active", "main_pid", "kind", "at", "action", "number")),
        ("failing", ctypes.c_uint32),
        ("struck", ctypes.c_int32),
        ("logged", ctypes.c_int32),
        ("counts", ctypes.c_int32 * 16),
        ("root", ctypes.c_char * 512),
        ("log", Entry * LOGGED),
    )


def open_board(path: Path) -> Board:
    with path.open("r+b") as file:
        return Board.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(Board)))


def arm(board: Board, root: str, fault: dict[str, Any] | None) -> None:
    """Sets the board for one run, in the process that is to make it."""
    ctypes.memset(ctypes.addressof(board), 0, Board.log.offset)
    board.root, board.main_pid, board.kind = os.fsencode(root), os.getpid(), -1
    if fault is not None:
        board.kind, board.at = KINDS.index(fault["kind"]), fault["at"]
        board.action, board.number = ACTIONS.index(fault["action"]), fault.get("number", 0)
        board.failing = sum(1 << KINDS.index(kind) for kind in fault.get("failing", ()))
    board.active = 1


def run(board: Board, job: dict[str, Any], tell: int) -> None:
    """The child: ends as the command does. It tells what it had to import."""
    from headcount.cli import main

    os.setpgid(0, 0)
    os.chdir(job["cwd"])
    subprocess._fork_exec = _fork_python  # type: ignore[attr-defined]
    before = {*sys.modules}
    arm(board, job["root"], job["fault"])
    code = 99
    try:
        main(job["arguments"])
    except SystemExit as end:
        code = _code_of(end)
    except BaseException:
        traceback.print_exc()
    _end(code, lambda: os.write(tell, json.dumps(sorted({*sys.modules} - before)).encode()))


def _code_of(end: SystemExit) -> int:
    return end.code if isinstance(end.code, int) else int(end.code is not None)


def _end(code: int, last: Any = lambda: None) -> None:
    """As the interpreter ends, but for what it frees."""
    with contextlib.suppress(BaseException):
        threading._shutdown()  # type: ignore[attr-defined]
    with contextlib.suppress(BaseException):
        atexit._run_exitfuncs()
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
        last()
    os._exit(code)


def _fork_python(arguments: list[bytes], *more: Any) -> int:
    """In the place of fork and exec of `python SCRIPT ...`: the script runs in a fork, which has
    torch already; an import of seconds at each of thousands of runs is saved."""
    pipes, errors = more[5:11], more[12]  # stdin, stdout, stderr as (read, write); errpipe_write
    child = os.fork()
    if child:
        return child
    try:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        atexit._clear()
        os.close(errors)
        for target, end in enumerate((pipes[0], pipes[3], pipes[5])):
            if end != -1:
                os.dup2(end, target)
        sys.argv = [os.fsdecode(argument) for argument in arguments[1:]]
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit as end:
        _end(_code_of(end))
    except BaseException:
        traceback.print_exc()
        _end(1)
    _end(0)
    raise AssertionError


def wait_for(child: int) -> int:
    """The exit status; -1 - 64 for a command that does not end."""
    descriptor = os.pidfd_open(child)
    try:
        if not select.select([descriptor], [], [], PATIENCE)[0]:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return -65
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def strays(status: int) -> int:
    """How many processes of the command are left; one that was killed may leave some for the
    moment that it takes them to end."""
    deadline = time.monotonic() + (20 if status == -signal.SIGKILL else 0.5)
    while _has_children():
        if time.monotonic() > deadline:
            return _kill_children()
        time.sleep(0.005)
    return 0


def _has_children() -> bool:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
        return True
    return False


def _kill_children() -> int:
    found = 0
    for number in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
        os.kill(int(number), signal.SIGKILL)
        found += 1
    while _has_children():
        time.sleep(0.005)
    return found


def import_all(names: list[str]) -> None:
    """So that the next fork finds it there, and does not look through it for garbage."""
    for name in names:
        with contextlib.suppress(Exception):
            importlib.import_module(name)
    if names:
        gc.collect()
        gc.freeze()


def answer(board: Board, job: dict[str, Any]) -> dict[str, Any]:
    told_by, tell = os.pipe()
    files = [os.memfd_create(name) for name in ("stdout", "stderr")]
    child = os.fork()
    if child == 0:
        os.close(told_by)
        for target, file in enumerate(files, start=1):
            os.dup2(file, target)
        run(board, job, tell)
    os.close(tell)
    status = wait_for(child)
    left = strays(status)
    board.active = 0
    with os.fdopen(told_by, "rb") as pipe:
        import_all(json.loads(pipe.read() or b"[]"))
    texts = []
    for file in files:
        with os.fdopen(file, "rb") as output:
            output.seek(0)
            texts.append(output.read().decode(errors="replace"))
    calls = board.log[: min(board.logged, LOGGED)] if job["fault"] is None else []
    return {
        "status": status,
        "stdout": texts[0],
        "stderr": texts[1],
        "struck": bool(board.struck),
        "counts": dict(zip(KINDS, board.counts, strict=False)),
        "calls": [[KINDS[call.kind], os.fsdecode(call.path)] for call in calls],
        "strays": left,
    }


def serve(board: Board) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    import_all(["headcount.convert.conversion"])  # and torch with it
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(board, json.loads(line))) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    serve(open_board(Path(os.environ["HEADCOUNT_FAULT_BOARD"])))
