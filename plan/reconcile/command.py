"""`reconcile`: from a log and options to a report."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from headcount.model.errors import HeadcountError
from headcount.report.report import Report

from .figures import figures
from .log import FIGURES, LOOKED_FOR, read_log
from .reading import read_lines
from .report import reconciliation_report
from .start import start_of
from .why import explained


class Reconciliation(NamedTuple):
    """The report, and whether no figure disagrees."""

    report: Report
    agrees: bool


def reconcile_log(name: str, options: Mapping[str, Any]) -> Reconciliation:
    """Reads the log `name` (- for standard input) and holds its figures against predicted ones.

    Raises HeadcountError for a log without figures, or of a model that nothing names.
    """
    log = read_log(read_lines(name))
    if not any(figure in log.figures for figure in FIGURES):
        raise HeadcountError(
            f"{'standard input' if name == '-' else name} has none of the figures that engines log"
            f"\nlooked for: {LOOKED_FOR}"
        )
    start = start_of(log, options)
    found = [explained(start, figure) for figure in figures(start)]
    report = reconciliation_report("standard input" if name == "-" else name, start, found)
    return Reconciliation(report=report, agrees=all(figure.agrees is not False for figure in found))
