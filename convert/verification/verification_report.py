"""A verification as people and programs read it."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from headcount.model import limits
from headcount.report.report import Column, Fact, Report, Table

from .findings import Verified

_COUNTS = {
    "files": ("Files", "of the record"),
    "tensors": ("Tensors by digest", "held against the record"),
    "copied": ("Copies", "equal to the source's, byte for byte"),
    "recomputed": ("Recomputed", "equal to what the source gives, byte for byte"),
    "rounded": ("Merged once more", "equal but for roundings: another processor's sums"),
    "by_digest_only": (
        "By digest only",
        "of a text that is not kept, or of what cannot be run here",
    ),
}


def verification_report(folder: Path, verified: Verified) -> Report:
    """What was looked at, and what differs."""
    found = verified.differences
    number = f"{len(found)} difference{'s'[: len(found) != 1]}"
    rows = tuple((one.where, one.what) for one in found[: limits.FINDINGS_SHOWN.most])
    columns = (Column(key="where", title="Where"), Column(key="what", title="What"))
    table = Table(key="differences", title="Differences", columns=columns, rows=rows)
    return Report(
        title=f"{folder}: " + (number if found else "is as its record says"),
        facts=tuple(_facts(verified)),
        tables=(table,) if rows else (),
        notes=tuple(_notes(verified)),
        document={
            "schema_version": 1,
            "verify": {
                "checked": verified.counts,
                "differences": [asdict(one) for one in found],
                "notes": verified.notes,
            },
        },
        records=table,
        title_is_answer=True,
    )


def _facts(verified: Verified) -> Iterator[Fact]:
    for key, (title, note) in _COUNTS.items():
        if key in verified.counts:
            yield Fact(key=key, title=title, value=verified.counts[key], unit="count", note=note)


def _notes(verified: Verified) -> Iterator[str]:
    yield from verified.notes
    more = len(verified.differences) - limits.FINDINGS_SHOWN.most
    if more > 0:
        yield f"{more} more differences: --format json has them"
