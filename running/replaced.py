"""Another value in an attribute of a library's module or class, for as long as a context lasts."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def replaced(owner: Any, name: str, value: object) -> Iterator[None]:
    """`owner.name` is `value` inside, and afterwards what it was: its own, or an inherited one.
    Raises AttributeError where there is none to replace."""
    before, is_own = getattr(owner, name), name in vars(owner)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)
