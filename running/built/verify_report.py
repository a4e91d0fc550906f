"""What a comparison with the built model adds to the report of an audit."""

import transformers

from headcount.audit.audited import Audit
from headcount.audit.rules.rule import in_order, run
from headcount.audit.rules.verified import RULES, VerifyFacts
from headcount.report.report import Column, Report, Table

from .compare_layers import compare_with_built

_COLUMNS = (
    Column(key="compared", title="Compared"),
    Column(key="audit", title="Audit", unit="count"),
    Column(key="built", title="transformers", unit="count"),
    Column(key="result", title="Result"),
)


def with_verification(report: Report, audit: Audit) -> Report:
    """`report`, the report of `audit`, with what the built model says. Raises HeadcountError."""
    facts = compare_with_built(audit)
    findings = in_order((*report.findings, *run(RULES, facts)))
    return report._replace(
        tables=(*report.tables, _table(facts)),
        notes=(*report.notes, *_notes(facts)),
        findings=findings,
        document={
            **report.document,
            "findings": [finding.document() for finding in findings],
            "verify": _document(facts),
        },
    )


def _table(facts: VerifyFacts) -> Table:
    sums = ((c.what, c.audit, c.built, _result(c.audit, c.built)) for c in facts.compared)
    unlike = (
        (f"{one.where}: {one.detail}", one.audit, one.built, "differs")
        for one in facts.unlike
        if one.layers
    )
    return Table(
        key="verify",
        title=f"Against {facts.built_as} of transformers",
        columns=_COLUMNS,
        rows=(*sums, *unlike),
    )


def _result(mine: int, built: int) -> str:
    return "the same" if mine == built else "differs"


def _notes(facts: VerifyFacts) -> tuple[str, ...]:
    unlike = f"{len(facts.unlike)} difference(s)" if facts.unlike else "no difference"
    return (
        f"{facts.built_as} was built by transformers {transformers.__version__} from the config"
        f" alone, without values, and compared layer by layer and part by part: {unlike}.",
        *(f"Not compared: {what}: {reason}." for what, reason in facts.left_out),
    )


def _document(facts: VerifyFacts) -> dict[str, object]:
    """The object `verify` of the JSON report."""
    return {
        "model_class": facts.built_as,
        "transformers": transformers.__version__,
        "cache_tokens": list(facts.lengths),
        "compared": [one._asdict() for one in facts.compared],
        "not_compared": [{"what": what, "reason": reason} for what, reason in facts.left_out],
        "differences": [{**one._asdict(), "layers": list(one.layers)} for one in facts.unlike],
    }
