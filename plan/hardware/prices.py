"""What devices cost an hour: a file of the user's own, since prices are of a place and a day."""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path

from headcount.model.errors import HeadcountError, short

from ..devices import find_device

HOURS_A_MONTH = 730  # 365 x 24 / 12
_MOST_BYTES = 2**20
_FORM = "a row NAME,PRICE for each device, or JSON {NAME: PRICE}, the price of one for an hour"

Prices = Mapping[str, float]  # key of a device -> price of one for an hour


def read_prices(path: Path) -> Prices:
    """CSV, with or without a header, or JSON. Raises HeadcountError for a file that is not of that
    form, a name that no device has, and a device with two prices."""
    try:
        with path.open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise HeadcountError(f"{path}: cannot be read: {reason}") from error
    if len(data) > _MOST_BYTES:
        raise HeadcountError(f"{path}: is larger than 1 MiB; {_FORM} is meant")
    found: dict[str, float] = {}
    for name, value in _rows(path, text):
        key = _known(path, name)
        if key in found:
            raise HeadcountError(f"{path}: {key} has two prices")
        found[key] = _price(path, name, value)
    return found


def _rows(path: Path, text: str) -> Iterable[tuple[str, object]]:
    if text.lstrip()[:1] in ("{", "["):
        return _json_rows(path, text)
    rows = [row for row in csv.reader(io.StringIO(text)) if any(cell.strip() for cell in row)]
    if rows and [cell.strip().lower() for cell in rows[0]] == ["name", "price"]:
        rows = rows[1:]
    wrong = next((row for row in rows if len(row) != 2), None)
    if wrong is not None or not rows:
        said = f"found {short(','.join(wrong))}" if wrong else "it is empty"
        raise HeadcountError(f"{path}: {_FORM} is meant; {said}")
    return [(name.strip(), value.strip()) for name, value in rows]


def _json_rows(path: Path, text: str) -> Iterable[tuple[str, object]]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeadcountError(f"{path}: is no JSON: {error}") from error
    if isinstance(found, list) and all(
        isinstance(row, dict) and set(row) == {"name", "price"} for row in found
    ):
        return [(str(row["name"]), row["price"]) for row in found]
    if not isinstance(found, dict):
        raise HeadcountError(f"{path}: {_FORM} is meant")
    return found.items()


def _known(path: Path, name: str) -> str:
    try:
        return find_device(name).key
    except HeadcountError as error:
        raise HeadcountError(f"{path}: {error}") from error


def _price(path: Path, name: str, value: object) -> float:
    try:
        price = float(value) if isinstance(value, str | int | float) else -1.0
    except (ValueError, OverflowError):
        price = -1.0
    if isinstance(value, bool) or not (isfinite(price) and price >= 0):
        raise HeadcountError(f"{path}: the price of {name} is {short(value)}: a number is meant")
    return price
