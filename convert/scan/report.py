"""What a scan saw, as a report: a table by layer, a note, and the object `scan` of the JSON."""

import time

from headcount.audit.audit_report import audit_report
from headcount.audit.audited import Audit
from headcount.audit.rules.rule import in_order, run
from headcount.audit.rules.scanned import RULES, LayerScan, ScanFacts
from headcount.model.sizes import AuditRequest
from headcount.report.report import Column, Report, Table

from .reading import scan

_COLUMNS = (
    Column(key="layer", title="Layer"),
    Column(key="num_key_value_heads", title="K/V", unit="count"),
    Column(key="distinct", title="Distinct", unit="count"),
    Column(key="key_similarity", title="K similarity", unit="similarity"),
    Column(key="value_similarity", title="V similarity", unit="similarity"),
)


def scan_report(audit: Audit, request: AuditRequest) -> Report:
    """The audit's report with what a scan of the weights adds. Raises HeadcountError."""
    start = time.perf_counter()
    facts = scan(audit)
    report = audit_report(audit, request)
    findings = in_order((*report.findings, *run(RULES, facts)))
    document = {
        **report.document,
        "scan": _document(facts),
        "findings": [finding.document() for finding in findings],
    }
    return report._replace(
        tables=(*report.tables, *([_table(facts)] if facts.layers else [])),
        notes=(*report.notes, *_notes(audit, facts, time.perf_counter() - start)),
        findings=findings,
        document=document,
    )


def _table(facts: ScanFacts) -> Table:
    """A row per layer. The last columns are what a conversion to so many K/V heads would lose."""
    counts = sorted({count for layer in facts.layers for count in layer.lost_by_mean}, reverse=True)
    lost = (Column(key=f"lost_{n}", title=f"Lost, {n} K/V", unit="loss_share") for n in counts)
    return Table(
        key="scan",
        title="K/V heads by their weights",
        columns=(*_COLUMNS, *lost),
        rows=tuple(_row(layer, counts) for layer in facts.layers),
    )


def _row(layer: LayerScan, counts: list[int]) -> tuple[object, ...]:
    return (
        layer.layer,
        layer.num_key_value_heads,
        layer.num_key_value_heads if layer.repeated is None else layer.repeated,
        layer.key_similarity,
        layer.value_similarity,
        *(layer.lost_by_mean.get(count) for count in counts),
    )


def _notes(audit: Audit, facts: ScanFacts, seconds: float) -> tuple[str, ...]:
    checkpoint = audit.checkpoint
    left = len(checkpoint.tensors) - len(facts.tensors) if checkpoint else 0
    more = f"; {left:,} that hold no floats were not" if left else ""
    scanned = f"{len(facts.tensors):,} tensors were scanned in {seconds:.1f} s{more}."
    if facts.tied:
        same = sum(one.same for one in facts.tied)
        scanned += f" {same} of {len(facts.tied)} copies of tied matrices hold the same values."
    if not facts.layers:
        return (
            f"{scanned} No K/V heads were compared: no tensor of a decoder holds them plainly.",
        )
    return (
        f"{scanned} Similarity is the mean cosine over all pairs of K/V heads of a layer: near 0"
        " they have nothing in common, at 1 they are equal.",
        "Lost is the share of the squared K and V weights that is gone when each group of K/V heads"
        " becomes its mean: at 0 a conversion to so many changes nothing.",
    )


def _document(facts: ScanFacts) -> dict[str, object]:
    """The object `scan` of the JSON report; tensors only where something is wrong with them."""
    odd = [t for t in facts.tensors if t.nans or t.infinities or t.zero]
    return {
        "tensors": len(facts.tensors),
        "odd_tensors": [tensor._asdict() for tensor in odd],
        "layers": [layer._asdict() for layer in facts.layers],
        "tied": [one._asdict() for one in facts.tied],
    }
