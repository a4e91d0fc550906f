"""What every function of the library returns: a report, in any format."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from headcount.model.errors import HeadcountError, of_system
from headcount.report import render
from headcount.report.report import SEVERITIES, Finding, Report, Severity
from headcount.report.view import View, output_width

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """A report, as the command of the same name prints it: `str()` is what a terminal shows with
    --details, in lines of its width, and a notebook shows html. Nothing of it changes. `headcount
    schema` prints the schema of its document."""

    report: Report = field(repr=False)

    @property
    def _reports(self) -> tuple[Report, ...]:
        """What the command prints."""
        return (self.report,)

    @property
    def schema_version(self) -> int:
        """That of the document."""
        version: Any = self.report.document["schema_version"]
        return int(version)

    def to_dict(self) -> dict[str, Any]:
        """The command's JSON document as a new dict."""
        found: dict[str, Any] = json.loads(self.to_json())
        return found

    def to_json(self) -> str:
        """The command's JSON document, as `--format json` prints it."""
        return render(self._reports, "json")

    def to_markdown(self) -> str:
        """The report for an issue, or a README."""
        return render(self._reports, "markdown")

    def to_html(self) -> str:
        """The report as a page of its own, which needs nothing else."""
        return render(self._reports, "html")

    def _repr_html_(self) -> str:
        from .notebook import fragment

        return "\n".join(map(fragment, self._reports))

    def __str__(self) -> str:
        return render(self._reports, "table", View(width=output_width()))


@contextmanager
def bars(shown: bool) -> Iterator[None]:
    """Inside, long work shows bars on standard error, if that is a terminal, or none at all."""
    from headcount.running.progress import SHOWN

    token = SHOWN.set(shown)
    try:
        yield
    finally:
        SHOWN.reset(token)


def findings_from(findings: tuple[Finding, ...], severity: Severity) -> tuple[Finding, ...]:
    """Those of `severity` or worse. Raises HeadcountError for a word that is none."""
    if severity not in SEVERITIES:
        known = ", ".join(SEVERITIES)
        raise HeadcountError(f"severity {severity!r} is not one of {known}")
    wanted = SEVERITIES[: SEVERITIES.index(severity) + 1]
    return tuple(finding for finding in findings if finding.severity in wanted)


def public(function: Callable[P, R]) -> Callable[P, R]:
    """Turns failures of the machine into a HeadcountError, the one class of all errors."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except OSError as error:
            raise of_system(error) from error

    return called
