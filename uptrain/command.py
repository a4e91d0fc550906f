"""What the command `uptrain` does: check that accelerate is there, train, hand over the report."""

from collections.abc import Callable, Iterable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from headcount.convert.report_path import check_report_path
from headcount.convert.signals import exit_cleanly, on_signals
from headcount.model.errors import MissingExtraError
from headcount.report.report import Report


def uptrain_model(
    converted: str,
    teacher: str,
    texts: Iterable[Path],
    *,
    output: Path | None,
    write: Callable[[list[Report]], None],
    **options: Any,
) -> None:
    """Trains with `options`, fields of an UptrainRequest by their names; `write` gets the report,
    in the main process alone, and `output` is the file that it writes. Raises HeadcountError."""
    if find_spec("accelerate") is None:
        raise MissingExtraError(
            "uptrain needs accelerate: install the extra `uptrain`, in a clone of headcount with:"
            " pip install '.[uptrain]'"
        )
    from .as_report import uptraining_report
    from .request import UptrainRequest
    from .uptraining import uptrain

    folders = [Path(converted), Path(teacher)]
    target = options.get("output_dir")
    check_report_path(output, folders if target is None else [*folders, target])
    request = UptrainRequest(converted=converted, teacher=teacher, texts=tuple(texts), **options)
    with on_signals(exit_cleanly):
        report = uptrain(request)
    if report is not None:
        write([uptraining_report(report)])
