"""What a rule is: a code, a severity, a hint, and a pure function from facts to what it saw."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Generic, NamedTuple, TypeVar

from headcount.model import limits
from headcount.model.errors import bounded
from headcount.report.report import SEVERITIES, Finding, Severity, counted

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
    """All that `rules` see in `facts`; what they quote of a stranger's input, and how many findings
    they make of it, is bounded here."""
    return tuple(finding for rule in rules for finding in _findings(rule, facts))


def _findings(rule: Rule[F], facts: F) -> Iterator[Finding]:
    """What `rule` sees: so many places, and one finding that counts the others."""
    seen = iter(rule.check(facts))
    for one in islice(seen, limits.FINDINGS_OF_A_RULE.most):
        yield Finding(
            code=rule.code,
            severity=one.severity or rule.severity,
            where=bounded(one.where),
            message=bounded(one.message),
            hint=rule.hint if one.hint is None else one.hint,
        )
    others = [SEVERITIES.index(one.severity or rule.severity) for one in seen]
    if others:
        yield counted(rule.code, SEVERITIES[min(others)], len(others), rule.hint)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Errors first, then by code and place."""
    return tuple(sorted(findings, key=lambda f: (SEVERITIES.index(f.severity), f.code, f.where)))
