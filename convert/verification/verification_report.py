"""A verification as people and programs read it."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from headcount.model import limits
from headcount.report.report import Column, Fact, Report, Table

from .findings import Verified

_BRIEF = 5  # rows on a terminal
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
    rows = tuple((one.where, one.what) for one in found[: limits.FINDINGS_SHOWN.most])
    columns = (Column(key="where", title="Where"), Column(key="what", title="What"))
    table = Table(key="differences", title="Differences", columns=columns, rows=rows, brief=_BRIEF)
    return Report(
        title=f"{folder}: {_answer(verified)}",
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


def _answer(verified: Verified) -> str:
    count = len(verified.differences)
    number = f"{count:,} difference{'s'[: count != 1]}"
    if verified.is_of_another_source:
        return f"is as it was written, and its source is another one now: {number}"
    return f"is not as its record says: {number}" if count else "is as its record says"


def _facts(verified: Verified) -> Iterator[Fact]:
    for key, (title, note) in _COUNTS.items():
        if key in verified.counts:
            yield Fact(key=key, title=title, value=verified.counts[key], unit="count", note=note)


def _notes(verified: Verified) -> Iterator[str]:
    yield from verified.notes
    more = len(verified.differences) - limits.FINDINGS_SHOWN.most
    if more > 0:
        yield f"{more} more differences: --format json has them"
