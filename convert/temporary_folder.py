"""Folders where temporary files belong, whose names tell who made them: what a killed run left is
removed by the next one that makes such a folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headcount.running.passing_folder import passing_folder, remove_folder

from .plan.leftovers import leftovers, own_folder


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A `passing_folder` that only this user may read. Raises OSError."""
    from tempfile import gettempdir

    place = Path(gettempdir(), "headcount")
    for left in leftovers(place, purpose):
        remove_folder(left)
    with passing_folder(own_folder(place, purpose), 0o700) as folder:
        yield folder
