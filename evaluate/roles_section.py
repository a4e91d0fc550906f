"""The section of an evaluation that says what became of the heads: roles kept, lost and gained."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from headcount.heads.comparison.comparison import AtlasComparison
from headcount.heads.comparison.comparison_report import roles_table, verdict_facts
from headcount.heads.comparison.comparison_run import NamedFolder, compare_heads
from headcount.heads.heads_request import HeadsRequest
from headcount.model.errors import HeadcountError
from headcount.report.report import Fact, Table

from .evaluation_document import EvaluationReport
from .evaluation_request import EvaluationRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class RolesSection:
    """What the heads of a model do against those of its original; without a comparison the reason
    stands in `warnings`."""

    comparison: AtlasComparison | None = None
    warnings: tuple[str, ...] = ()


def roles_section(request: EvaluationRequest) -> RolesSection:
    """The heads of both models on random tokens, one model in memory at a time; an empty section
    without an original, or where roles are not asked for. That heads cannot be compared is said,
    and no error: the evaluation goes on."""
    if request.against is None or not request.roles:
        return RolesSection()
    wanted = HeadsRequest(model=request.model, dtype=request.dtype, device=request.device)
    folders = [NamedFolder(Path(name), name) for name in (request.model, request.against)]
    try:
        found = compare_heads(wanted, *folders)
    except HeadcountError as error:
        return RolesSection(warnings=(f"roles of heads: not compared: {error}",))
    return RolesSection(comparison=found, warnings=found.warnings)


def with_roles(report: EvaluationReport, section: RolesSection) -> EvaluationReport:
    """The report of an evaluation, with the section; no warning twice."""
    warnings = tuple(dict.fromkeys((*report.warnings, *section.warnings)))
    return replace(report, roles=section.comparison, warnings=warnings)


def roles_facts(report: EvaluationReport) -> Iterator[Fact]:
    if report.roles is not None:
        yield from verdict_facts(report.roles, "Roles of heads", "roles_kept")


def roles_tables(report: EvaluationReport) -> Iterator[Table]:
    if report.roles is not None and report.roles.roles:
        yield roles_table(report.roles, "Roles of heads")
