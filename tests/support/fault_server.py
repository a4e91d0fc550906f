"""Runs the command line again and again in forked processes, each with one fault at a chosen call.

A program of its own: the wrappers below must be in place before anything else binds the functions.
Reads JSON lines {"arguments", "fault", "at", "number"} and answers {"status", "calls", "struck",
"stdout", "stderr"}, where `struck` names the function of the chosen call. `fault` is null, "kill"
(the process ends at that call, a write half done), "once" or "always" (the call, or it and all
later ones that take space, fail with `number`), or "signal" (the process sends itself the signal
`number` when the function `at`, "module:Class.method", has done its work, once it is given
something that has `given` in its name). `without` names a function that this system is to lack,
"lock", or "exchange".
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
CALLS = (*SPACE, "rename", "replace", "unlink", "remove", "rmdir")


class Injector:
    """Counts calls that change a disk, and lets one of them go wrong."""

    def __init__(self) -> None:
        self.calls = 0
        self.fault: str | None = None
        self.at = self.number = 0
        self.struck = ""
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
            if here:
                self.struck = name
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


def stop_at(place: str, given: str, number: int) -> None:
    """Puts a function that sends a signal in the place of the one that `place` names."""
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *classes, name = path.split(".")
    for one in classes:
        owner = getattr(owner, one)
    plain = getattr(owner, name)

    def stopping(*arguments: Any, **options: Any) -> Any:
        result = plain(*arguments, **options)
        names = [str(getattr(argument, "name", argument)) for argument in arguments]
        if any(given in name for name in names):
            os.kill(os.getpid(), number)
        return result

    setattr(owner, name, stopping)


def plant(injector: Injector, job: dict[str, Any]) -> None:
    """Makes ready what is to go wrong."""
    from headcount.convert.stream import lock, work_folder

    if job.get("without") == "lock":
        lock.TargetLock.__enter__ = lambda self: self  # type: ignore[method-assign]
        lock.TargetLock.__exit__ = lambda self, *_: None  # type: ignore[method-assign]
    elif job.get("without") == "exchange":
        work_folder.exchange = lambda *_: False
    elif job.get("without"):
        delattr(os, job["without"])
    injector.calls = 0
    if job.get("fault") == "signal":
        stop_at(job["at"], job.get("given", ""), job["number"])
        return
    injector.fault, injector.at = job.get("fault"), job.get("at", 0)
    injector.number = job.get("number", 0)


def run(injector: Injector, job: dict[str, Any], tell: int) -> None:
    """The child: ends with the command's status. It tells how many calls it made, and what it had
    to import."""
    from headcount.cli import main

    before = {*sys.modules}
    plant(injector, job)
    try:
        main(job["arguments"])
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        injector.at = 0
        imported = sorted({*sys.modules} - before)
        told = {"calls": injector.calls, "struck": injector.struck, "imported": imported}
        injector.plain["write"](tell, json.dumps(told).encode())
        os._exit(int(end.code or 0))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(99)


def serve(injector: Injector) -> None:
    importlib.import_module("headcount.convert.conversion")  # and torch with it
    for line in sys.stdin:
        job = json.loads(line)
        answer, tell = os.pipe()
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            child = os.fork()
            if child == 0:
                os.close(answer)
                os.dup2(output.fileno(), 1)
                os.dup2(errors.fileno(), 2)
                run(injector, job, tell)
            os.close(tell)
            with os.fdopen(answer, "rb") as told_by:
                told = json.loads(told_by.read() or b'{"calls": 0, "struck": "", "imported": []}')
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            texts = []
            for file in (output, errors):
                file.seek(0)
                texts.append(file.read().decode())
        for name in told.pop("imported"):  # so that the next fork finds it there
            if name.split(".")[0] in ("headcount", "safetensors", "tabulate", "torch", "tqdm"):
                importlib.import_module(name)
        ended = {"status": status, "stdout": texts[0], "stderr": texts[1], **told}
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    wrappers = Injector()
    wrappers.install()
    serve(wrappers)
