"""What `convert --verify` does: hold a finished output against its record, and its source."""

from collections.abc import Callable, Sequence
from pathlib import Path

from headcount.convert.plan.errors import CheckFailedError
from headcount.convert.source_folder import source_folder
from headcount.convert.verification.recorded import read_recorded
from headcount.convert.verification.verification import verify
from headcount.convert.verification.verification_report import verification_report
from headcount.model.errors import HeadcountError
from headcount.report.report import Report
from headcount.running.signals import exit_cleanly, on_signals

from .output.report_path import check_report_path


def verify_model(
    folder: Path,
    source: str | None,
    *,
    sample: int | None,
    seed: int,
    allow_pickle: bool,
    merge_adapter: bool,
    output: Path | None,
    write: Callable[[Sequence[Report]], None],
) -> None:
    """Verifies the output in `folder`, with `source` if it is given, and hands over the report.
    Raises HeadcountError, and CheckFailedError for differences."""
    recorded = read_recorded(folder)
    if source is not None and folder.resolve() == Path(source).resolve():
        raise HeadcountError(
            f"{folder}: is OUT and SOURCE at once: name the folder that it was made from, or leave"
            " SOURCE out"
        )
    check_report_path(output, [folder, *([Path(source)] if source else [])])
    with on_signals(exit_cleanly):
        if source is None:
            verified = verify(recorded, None, sample=sample, seed=seed)
        else:
            beside = folder.with_name(f"{folder.name}.verified")  # of pickles, a copy lies there
            with source_folder(
                source, beside, whole=True, allow_pickle=allow_pickle, merge_adapter=merge_adapter
            ) as found:
                verified = verify(recorded, found.path, sample=sample, seed=seed)
    write([verification_report(folder, verified)])
    if verified.differences:
        raise CheckFailedError(f"{folder}: is not as its record says")
