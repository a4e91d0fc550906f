"""A verification from start to end."""

from collections.abc import Collection
from pathlib import Path

from ..stream.hashing import digest_of_bytes
from .against_record import check_record
from .against_source import check_source
from .findings import Verified
from .recorded import Recorded


def verify(recorded: Recorded, source: Path | None, *, sample: int | None, seed: int) -> Verified:
    """Holds an output against its record and, where it is given, against its source. Of tensors
    only `sample` are read, which the `seed` chooses; None: all. Reads only.

    Raises HeadcountError for what cannot be read; what differs is in the result.
    """
    chosen = None if sample is None else _chosen(recorded, sample, seed)
    verified = Verified()
    headers = check_record(recorded, chosen, verified)
    if not recorded.tensors:
        verified.notes.append("The record has no digests of tensors: files were held against it.")
    if source is not None:
        check_source(recorded, source, headers, chosen, verified)
    return verified


def _chosen(recorded: Recorded, sample: int, seed: int) -> Collection[str]:
    """Names drawn by a hash: the same seed draws the same."""
    names = sorted(recorded.tensors, key=lambda name: digest_of_bytes(f"{seed}/{name}".encode()))
    return frozenset(names[:sample])
