"""What Python and its libraries write to stderr by themselves, without secrets."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .redaction import redacted


def show_traceback(error: BaseException) -> None:
    """The traceback of `error`, and of all that led to it, on stderr."""
    from traceback import format_exception

    sys.stderr.write(redacted("".join(format_exception(error))))


def redact_hooks() -> None:
    """From here on, no secrets in tracebacks of errors that nobody catches, in any thread, nor in
    warnings. A hook that somebody else has set stays."""
    import threading
    import warnings

    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = lambda _kind, error, _trace: show_traceback(error)
    if threading.excepthook is threading.__excepthook__:
        threading.excepthook = _show_of_thread
    if sys.unraisablehook is sys.__unraisablehook__:
        sys.unraisablehook = _show_unraisable
    if warnings.formatwarning.__module__ == "warnings":
        warnings.formatwarning = _formatted(warnings.formatwarning)


def _show_of_thread(given: Any) -> None:
    if given.exc_value is not None and not isinstance(given.exc_value, SystemExit):
        show_traceback(given.exc_value)


def _show_unraisable(given: Any) -> None:
    if given.exc_value is not None:
        show_traceback(given.exc_value)


def _formatted(plain: Any) -> Any:
    def format_redacted(*arguments: Any, **options: Any) -> str:
        return redacted(plain(*arguments, **options))

    return format_redacted


@contextmanager
def redacted_logs() -> Iterator[None]:
    """Inside, what any library logs has no secrets: addresses that it tries again, for example."""
    import logging
    from traceback import format_exception

    before = logging.getLogRecordFactory()

    def make(*arguments: Any, **options: Any) -> logging.LogRecord:
        record = before(*arguments, **options)
        record.msg, record.args = redacted(record.getMessage()), ()
        if record.exc_info and record.exc_info[1] is not None:
            record.exc_text = redacted("".join(format_exception(record.exc_info[1])))
        return record

    logging.setLogRecordFactory(make)
    try:
        yield
    finally:
        logging.setLogRecordFactory(before)
