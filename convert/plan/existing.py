"""A target that exists: is it ours, what does it hold, and may it be replaced?

What we write has a record with a manifest: its files with their digests, and the job that made it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headcount.model import limits
from headcount.model.errors import HeadcountError
from headcount.sources.json_file import read_json

from .errors import TargetError
from .side_files import RECORD, shown_name

# What a digest is called in the manifest: 128 bits of XXH3, as xxhsum -H2 prints them.
DIGEST = "xxh3_128"


@dataclass(frozen=True, kw_only=True, slots=True)
class Existing:
    """An output of ours: its conversion.json, the job that made it, and the manifest of its files:
    name -> {"bytes", DIGEST}."""

    folder: Path
    record: Mapping[str, Any]
    job: str
    manifest: Mapping[str, Mapping[str, Any]]


def read_existing(target: Path) -> Existing | None:
    """The output of ours that `target` is; None where it is not there, or empty.

    Raises TargetError for a folder that holds anything else.
    """
    if not target.is_dir() or not any(target.iterdir()):
        return None
    existing = _parse(target)
    if existing is None:
        raise TargetError(
            f"{target}: exists and is not empty, and is no output of headcount; name another or"
            " remove it"
        )
    check_foreign(existing)
    return existing


def check_foreign(existing: Existing) -> None:
    """Raises TargetError if the folder holds what its manifest does not list."""
    listed = {RECORD, *existing.manifest}
    entries = sorted(existing.folder.iterdir())
    foreign = [path for path in entries if path.name not in listed or not path.is_file()]
    if foreign:
        names = ", ".join(shown_name(path.name) for path in foreign[:5])
        more = f" and {len(foreign) - 5} more" if len(foreign) > 5 else ""
        raise TargetError(
            f"{existing.folder}: holds files that a conversion did not put there: {names}{more};"
            " move them away, or name another folder"
        )


def _parse(target: Path) -> Existing | None:
    if not (target / RECORD).is_file():
        return None
    size = (target / RECORD).stat().st_size
    if size > limits.RECORD_BYTES.most:
        raise TargetError(limits.RECORD_BYTES.refusal(target / RECORD, size))
    try:
        record = read_json(target / RECORD, limits.RECORD_BYTES)
    except HeadcountError:
        return None
    manifest, job = record.get("manifest", {}), record.get("job")
    if not isinstance(job, str) or "manifest" not in record or not is_manifest(manifest):
        return None
    return Existing(folder=target, record=record, job=job, manifest=manifest)


def is_manifest(value: Any) -> bool:
    """Whether it says of each file how long it is, and its digest."""
    return isinstance(value, dict) and all(
        isinstance(entry, dict)
        and type(entry.get("bytes")) is int
        and isinstance(entry.get(DIGEST), str)
        for entry in value.values()
    )
