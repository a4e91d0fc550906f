"""`reconcile`: from logs and options to a report."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headcount.model import limits
from headcount.model.errors import HeadcountError, short
from headcount.report.report import Report

from ..engines.start_log import Log
from .failure import explain, first_failure, on_likely_device
from .log import LOOKED_FOR, read_log
from .model import UnknownModelError, models_of_weights
from .report import Outcome, overview, report_of
from .start import Start, names_of, start_of
from .why import explained, with_likelier_tp, with_likelier_version


class NoFiguresError(HeadcountError):
    """A file that is no log of an engine's start."""


class Reconciliation(NamedTuple):
    """The report, and whether every start came up and no figure disagrees."""

    report: Report
    agrees: bool


def reconcile_logs(names: Sequence[str], options: Mapping[str, Any]) -> Reconciliation:
    """One log in full, several, or those of a folder, as a table. Raises HeadcountError for one log
    that has nothing to say, or of a model that nothing names; a table says so in its row."""
    if len(names) == 1 and not _is_folder(names[0]):
        return reconcile_log(names[0], options)
    outcomes: list[Outcome] = []
    others: list[Outcome] = []
    for name in names:
        for file in _files(name):
            found = _outcome_or_error(file, options)
            no_log = found.has_no_figures and _is_folder(name)
            (others if no_log else outcomes).append(found)
    if not outcomes:
        raise HeadcountError(f"{', '.join(names)}: no file there has figures that engines log")
    report = overview(outcomes, [outcome.name for outcome in others])
    return Reconciliation(report, all(outcome.is_well for outcome in outcomes))


def reconcile_log(name: str, options: Mapping[str, Any]) -> Reconciliation:
    """Reads the log `name` (- for standard input) and holds its figures against predicted ones, or
    explains what the start died of.

    Raises HeadcountError for a log without either, or of a model that nothing names.
    """
    outcome = _outcome(name, options)
    return Reconciliation(report_of(outcome), outcome.is_well)


def _is_folder(name: str) -> bool:
    return name != "-" and Path(name).is_dir()


def _files(name: str) -> list[str]:
    """Of a folder its files, by name. Raises HeadcountError."""
    if not _is_folder(name):
        return [name]
    try:
        found = sorted(p for p in Path(name).iterdir() if p.is_file() and p.name[0] != ".")
    except OSError as error:
        raise HeadcountError(f"{name}: cannot be read: {error.strerror}") from error
    if len(found) > limits.FOLDER_ENTRIES.most:
        raise HeadcountError(limits.FOLDER_ENTRIES.refusal(name, len(found)))
    if not found:
        raise HeadcountError(f"{name}: no file is in this folder")
    return [str(path) for path in found]


def _outcome_or_error(name: str, options: Mapping[str, Any]) -> Outcome:
    try:
        return _outcome(name, options)
    except HeadcountError as error:
        text, no_figures = str(error).partition("\n")[0], isinstance(error, NoFiguresError)
        return Outcome(name=name, error=text, has_no_figures=no_figures)


def _outcome(name: str, options: Mapping[str, Any]) -> Outcome:
    log = read_log(name)
    shown = "standard input" if name == "-" else name
    if not log.is_telling:
        found = f"{shown} has none of the figures that engines log{_begun(log)}"
        raise NoFiguresError(f"{found}\nlooked for: {LOOKED_FOR}")
    if len(log.tellers) > 1:
        names = " and ".join(sorted(log.tellers))
        raise HeadcountError(
            f"{shown} holds figures of {names} in one start: hold the log of each alone"
        )
    start, unknown = _start(log, options)
    figures = tuple(explained(start)) if start else ()  # held against no device that they chose
    start = on_likely_device(start) if start else None
    return Outcome(
        name=shown,
        log=log,
        start=start,
        figures=figures,
        explanation=explain(log, start),
        notes=(unknown,) if unknown else (),
    )


def _begun(log: Log) -> str:
    """What a log says that ends too soon, in words; empty where it says nothing."""
    version, names = log.settings.get("version"), names_of(log, {})
    if version is None or not names:
        return ""
    return (
        f": it begins a start of {log.engine} {version} with {short(names[0])}, and ends before"
        " memory is told of: give it as far as it goes"
    )


def _start(log: Log, options: Mapping[str, Any]) -> tuple[Start | None, str | None]:
    """A log that says what its start died of is explained without its model, too: then the second
    says what is not known. Raises HeadcountError."""
    try:
        return with_likelier_version(with_likelier_tp(start_of(log, options))), None
    except HeadcountError as error:
        near = models_of_weights(log) if isinstance(error, UnknownModelError) else ()
        if near:
            error = UnknownModelError(f"{error}; weights of this size have {', '.join(near)}")
        if first_failure(log) is None:
            raise error from None
        return None, str(error)
