"""The weights of an output: a file is written while the one before it goes to the disk."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from ..plan.plan import ConversionPlan, OutputFile
from .reader import SourceReader
from .threads import one_thread
from .weights import Outcome, WeightStream
from .work_folder import WorkFolder
from .writer import Advance, NewFile, check_written


def write_shards(plan: ConversionPlan, work: WorkFolder, advance: Advance) -> Outcome:
    """Writes every file that is not finished yet, and says what was measured in all of them.

    Raises HeadcountError; OSError is a failure to write.
    """
    with (
        one_thread(),
        SourceReader(plan.request.source) as reader,
        _threads(plan.request.workers) as pool,
        _Finisher(work) as finisher,
    ):
        stream = WeightStream(plan, reader, pool)
        for file in plan.files:
            if file.name in work.finished:
                stream.outcome.add(Outcome.from_document(work.finished[file.name].measured))
                advance(file.nbytes)
                continue
            before = stream.outcome.copy()
            with NewFile(work.temporary(file.name), advance) as out:
                stream.write(file, out)
                finisher.take(file, out, stream.outcome.since(before))
        return stream.outcome


class _Finisher:
    """Finishes one file at a time, in a thread: fsync, a look at what was written, its name."""

    def __init__(self, work: WorkFolder) -> None:
        self.work = work
        self._threads = ThreadPoolExecutor(1)
        self._last: Future[None] | None = None

    def __enter__(self) -> "_Finisher":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._wait()
        finally:
            self._threads.shutdown(wait=True)

    def take(self, file: OutputFile, out: NewFile, outcome: Outcome) -> None:
        """Begins to finish `out`, when the one before it is. Raises what went wrong with that."""
        self._wait()
        out.hand_over()
        self._last = self._threads.submit(self._finish, file, out, outcome)

    def _wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def _finish(self, file: OutputFile, out: NewFile, outcome: Outcome) -> None:
        written = out.finish()
        check_written(out.path, file)
        self.work.keep(file.name, written, outcome.document())


@contextmanager
def _threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool; what has not begun when its context ends never does."""
    pool = ThreadPoolExecutor(count)
    try:
        yield pool
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
