"""The section of an evaluation that says what became of the heads: roles kept, lost and gained."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.heads.comparison.comparison import AtlasComparison
from headcount.heads.comparison.comparison_document import comparison_summary
from headcount.heads.comparison.comparison_report import roles_table, verdict_facts
from headcount.heads.comparison.comparison_run import NamedFolder, compare_heads
from headcount.heads.heads_request import HeadsRequest
from headcount.model.errors import HeadcountError
from headcount.report.report import Fact, Table

from .evaluation_request import EvaluationRequest


@dataclass(frozen=True, kw_only=True, slots=True)
class RolesSection:
    """What the heads of a model do against those of its original; without a comparison the reason
    stands in `warnings`."""

    comparison: AtlasComparison | None
    warnings: tuple[str, ...]

    def document(self) -> dict[str, Any] | None:
        """That of `headcount heads --against` without layers, and heads one by one."""
        return None if self.comparison is None else comparison_summary(self.comparison)

    def facts(self) -> Iterator[Fact]:
        if self.comparison is not None:
            yield from verdict_facts(self.comparison, "Roles of heads")

    def tables(self) -> Iterator[Table]:
        if self.comparison is not None and self.comparison.roles:
            yield roles_table(self.comparison)


def roles_section(request: EvaluationRequest) -> RolesSection | None:
    """The heads of both models on random tokens, one model in memory at a time; None without an
    original, or where roles are not asked for. Models whose heads cannot be compared are said."""
    if request.against is None or not request.roles:
        return None
    wanted = HeadsRequest(model=request.model, dtype=request.dtype, device=request.device)
    folders = [NamedFolder(Path(name), name) for name in (request.model, request.against)]
    try:
        found = compare_heads(wanted, *folders)
    except HeadcountError as error:
        return RolesSection(comparison=None, warnings=(f"roles of heads: not compared: {error}",))
    return RolesSection(comparison=found, warnings=found.warnings)
