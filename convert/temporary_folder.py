"""Folders where temporary files belong, whose names tell who made them: what a killed run left is
removed by the next one that makes such a folder."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from headcount.running.passing_folder import passing_folder, remove_folder
from headcount.running.signals import held_signals

from .plan.leftovers import leftovers, own_folder
from .stream.os_failures import writing


@contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """A `passing_folder` that only this user may read. Raises WriteError if it cannot be made."""
    from tempfile import gettempdir

    with held_signals():  # it tries each place with a file
        place = Path(gettempdir(), "headcount")
    for left in leftovers(place, purpose):
        remove_folder(left)
    with ExitStack() as stack:
        with writing(place.parent, 0):
            own = passing_folder(own_folder(place, purpose), 0o700)
            folder = stack.enter_context(own)
        yield folder
