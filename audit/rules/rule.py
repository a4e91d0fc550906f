"""What a rule is: a code, a severity, a hint, and a pure function from facts to what it saw."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from headcount.model.errors import bounded
from headcount.report.report import SEVERITIES, Finding, Severity

F = TypeVar("F")


class Sighting(NamedTuple):
    """One place where a rule's fault stands. None: the severity and hint of the rule itself."""

    where: str
    message: str
    severity: Severity | None = None
    hint: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule(Generic[F]):
    """`check` yields everything that the rule sees in facts of its kind; its docstring is the
    rule's line in lists. Codes are stable: H101 stays H101."""

    code: str
    name: str
    severity: Severity
    hint: str
    check: Callable[[F], Iterable[Sighting]]


def rule(
    code: str, name: str, severity: Severity, hint: str
) -> Callable[[Callable[[F], Iterable[Sighting]]], Rule[F]]:
    """Makes a rule of the check that stands below, by whose name it is called."""

    def of(check: Callable[[F], Iterable[Sighting]]) -> Rule[F]:
        return Rule(code=code, name=name, severity=severity, hint=hint, check=check)

    return of


def run(rules: Iterable[Rule[F]], facts: F) -> tuple[Finding, ...]:
    """All that `rules` see in `facts`; what they quote of a stranger's input is bounded here."""
    return tuple(
        Finding(
            code=rule.code,
            severity=seen.severity or rule.severity,
            where=bounded(seen.where),
            message=bounded(seen.message),
            hint=rule.hint if seen.hint is None else seen.hint,
        )
        for rule in rules
        for seen in rule.check(facts)
    )


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by code and place."""
    return tuple(sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.where)))
