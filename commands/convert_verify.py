"""What `convert --verify` does: hold a finished output against its record, and its source."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headcount.convert.plan.errors import CheckFailedError
from headcount.library.verifications import verification_of
from headcount.report.report import Report
from headcount.running.signals import exit_cleanly, on_signals

from .output.report_path import check_report_path


def verify_model(
    folder: Path,
    source: str | None,
    *,
    output: Path | None,
    write: Callable[[Sequence[Report]], None],
    **options: Any,
) -> None:
    """Verifies the output in `folder`, with `source` if it is given, and hands over the report.
    Raises HeadcountError, and CheckFailedError for differences."""
    check_report_path(output, [folder, *([Path(source)] if source else [])])
    with on_signals(exit_cleanly):
        report = verification_of(folder, source, **options)
    write([report])
    found: Any = report.document["verify"]
    if found["differences"]:
        raise CheckFailedError(report.title)
