"""The bar of work that takes long."""

import sys
from collections.abc import Iterable
from contextvars import ContextVar
from typing import TypeVar, overload

from tqdm import tqdm

Item = TypeVar("Item")
# Whether bars are wanted at all: a program that calls the library gets none unless it asks.
SHOWN: ContextVar[bool] = ContextVar("SHOWN", default=True)


@overload
def progress_bar(
    items: Iterable[Item], desc: str, unit: str, *, shown: bool = True, total: float | None = None
) -> "tqdm[Item]": ...
@overload
def progress_bar(
    items: None, desc: str, unit: str, *, shown: bool = True, total: float, initial: int = 0
) -> "tqdm[None]": ...
def progress_bar(
    items: Iterable[Item] | None,
    desc: str,
    unit: str,
    *,
    shown: bool = True,
    total: float | None = None,
    initial: int = 0,
) -> "tqdm[Item] | tqdm[None]":
    """On stderr, if that is a terminal and it is to be `shown`; it is gone when the work is done.
    Of bytes (unit "B") it counts KB and MB."""
    return tqdm(
        items,
        desc=desc,
        unit=unit,
        total=total,
        initial=initial,
        unit_scale=unit == "B",
        disable=not (shown and SHOWN.get()) or not sys.stderr.isatty(),
        file=sys.stderr,
        leave=False,
        dynamic_ncols=True,
    )
