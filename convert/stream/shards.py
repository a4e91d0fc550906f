"""The weights of an output: a file is written while those before it go to the disk."""

from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from threading import Lock
from typing import Any

from ..plan.plan import ConversionPlan, OutputFile
from .outcome import Outcome
from .reader import SourceReader
from .safetensors_header import check_written
from .threads import one_thread
from .weight_file import WeightStream
from .work_folder import WorkFolder
from .writer import Advance, NewFile


def write_shards(
    plan: ConversionPlan, reader: SourceReader, work: WorkFolder, advance: Advance
) -> Outcome:
    """Writes every file that is not finished yet, and says what was measured in all of them.

    Raises HeadcountError; OSError is a failure to write.
    """
    with (
        one_thread(),
        reader,
        _threads(plan.request.workers) as pool,
        _Finisher(work, plan.request.workers) as finisher,
    ):
        stream = WeightStream(plan, reader, pool)
        for file in plan.files:
            if file.name in work.finished:
                measured = work.finished[file.name].measured["outcome"]
                stream.outcome.add(Outcome.from_document(measured))
                advance(file.nbytes)
                continue
            before = stream.outcome.copy()
            with NewFile(work.temporary(file.name), advance) as out:
                stream.write(file, out)
                measured = {
                    "outcome": stream.outcome.since(before).document(),
                    "sources": stream.digests(file),
                }
                finisher.take(file, out, measured)
        return stream.outcome


class _Finisher:
    """Finishes a few files at a time, in threads: fsync, a look at what was written, its name."""

    def __init__(self, work: WorkFolder, most: int) -> None:
        self.work = work
        self._most = most
        self._threads = ThreadPoolExecutor(most)
        self._begun: deque[tuple[NewFile, Future[None]]] = deque()
        self._lock = Lock()  # for the journal

    def __enter__(self) -> "_Finisher":
        return self

    def __exit__(self, kind: type[BaseException] | None, *others: object) -> None:
        try:
            while kind is None and self._begun:
                self._wait()
        finally:
            for left, _ in self._begun:
                left.give_up()
            self._threads.shutdown(wait=True)

    def take(self, file: OutputFile, out: NewFile, measured: Mapping[str, Any]) -> None:
        """Begins to finish `out`; waits for the first one where there are enough of them. Raises
        what went wrong with that."""
        if len(self._begun) == self._most:
            self._wait()
        out.hand_over()
        self._begun.append((out, self._threads.submit(self._finish, file, out, measured)))

    def _wait(self) -> None:
        self._begun.popleft()[1].result()

    def _finish(self, file: OutputFile, out: NewFile, measured: Mapping[str, Any]) -> None:
        written = out.finish()
        check_written(out.path, file)
        with self._lock:
            self.work.keep(file.name, written, measured)


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool; what has not begun when its context ends never does."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
