"""Runs the command line again and again in forked processes, each with one fault at a chosen call.

A program of its own: the wrappers below must be in place before anything else binds the functions.
Reads JSON lines {"arguments", "fault", "at", "number"} and answers {"status", "calls", "stderr"}.
`fault` is null, "kill" (the process ends at that call, a write half done), "once" or "always" (the
call, or it and all later ones that take space, fail with `number`). `without` names a function that
this system is to lack, or "lock".
"""

import importlib
import json
import os
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from typing import Any

SPACE = ("open", "write", "copy_file_range", "link", "fsync", "mkdir")
# What every run needs, so that the forks find it there.
PRELOADED = (
    *("headcount.audit.auditing", "headcount.audit.against_weights", "headcount.report"),
    *("headcount.convert.as_report", "headcount.convert.conversion"),
    *("headcount.running.built.model", "headcount.convert.calibrate.ladder"),
)
CALLS = (*SPACE, "rename", "replace", "unlink", "remove", "rmdir")


class Injector:
    """Counts calls that change a disk, and lets one of them go wrong."""

    def __init__(self) -> None:
        self.calls = 0
        self.fault: str | None = None
        self.at = self.number = 0
        self.lock = threading.Lock()
        self.plain = {name: getattr(os, name) for name in CALLS if hasattr(os, name)}

    def install(self) -> None:
        for name, plain in self.plain.items():
            wrapped = self._wrap(name, plain)
            setattr(os, name, wrapped)
            for supports in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
                if plain in supports:  # asked by shutil.rmtree
                    supports.add(wrapped)

    def _wrap(self, name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if not self._counts(name, arguments):
                return plain(*arguments, **options)
            with self.lock:
                self.calls += 1
                here = self.calls == self.at
                later = self.calls > self.at > 0 and name in SPACE
            if self.fault == "kill" and here:
                self._half(name, arguments, options)
                os._exit(137)
            if (here and self.fault in ("once", "always")) or (later and self.fault == "always"):
                raise OSError(self.number, os.strerror(self.number))
            return plain(*arguments, **options)

        return call

    def _counts(self, name: str, arguments: tuple[Any, ...]) -> bool:
        if name == "open":
            return len(arguments) > 1 and bool(arguments[1] & os.O_CREAT)
        return name != "write" or arguments[0] > 2

    def _half(self, name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        if name == "write":
            self.plain[name](arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
        elif name == "copy_file_range":
            source, target, count = arguments
            self.plain[name](source, target, max(count // 2, 1), **options)


def serve(injector: Injector) -> None:
    from pathlib import Path

    from headcount.cli import main
    from headcount.convert.stream import lock

    for name in PRELOADED:
        importlib.import_module(name)

    for line in sys.stdin:
        job = json.loads(line)
        answer, tell = os.pipe()
        with tempfile.TemporaryFile() as errors, Path(os.devnull).open("wb") as nothing:
            child = os.fork()
            if child == 0:
                os.close(answer)
                os.dup2(errors.fileno(), 2)
                os.dup2(nothing.fileno(), 1)
                if job.get("without") == "lock":
                    lock.TargetLock.__enter__ = lambda self: self  # type: ignore[method-assign]
                    lock.TargetLock.__exit__ = lambda self, *_: None  # type: ignore[method-assign]
                elif job.get("without"):
                    delattr(os, job["without"])
                injector.calls = 0
                injector.fault, injector.at = job.get("fault"), job.get("at", 0)
                injector.number = job.get("number", 0)
                try:
                    main(job["arguments"])
                except SystemExit as end:
                    sys.stderr.flush()
                    injector.at = 0
                    injector.plain["write"](tell, b"%d" % injector.calls)
                    os._exit(int(end.code or 0))
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                    os._exit(99)
            os.close(tell)
            calls = os.read(answer, 20)
            os.close(answer)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            errors.seek(0)
            text = errors.read().decode()
        ended = {"status": status, "calls": int(calls or 0), "stderr": text}
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    wrappers = Injector()
    wrappers.install()
    serve(wrappers)
