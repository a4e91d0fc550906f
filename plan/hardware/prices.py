"""What devices cost an hour: a file of the user's own, since prices are of a place and a day."""

import csv
import io
from collections.abc import Iterable
from math import isfinite
from pathlib import Path

from headcount.model import limits
from headcount.model.errors import HeadcountError, short
from headcount.sources.json_file import BYTE_ORDER_MARK, open_bytes, parse_json

from ..devices import find_device
from .cost import Prices

_FORM = "a row NAME,PRICE for each device, or JSON {NAME: PRICE}, the price of one an hour,"


def read_prices(path: Path) -> Prices:
    """CSV, with or without a header, or JSON. Raises HeadcountError for a file that is not of that
    form, a name that no device has, and a device with two prices."""
    with open_bytes(path) as file:
        data = file.read(limits.PRICES_BYTES.most + 1)
    if len(data) > limits.PRICES_BYTES.most:
        raise HeadcountError(f"{limits.PRICES_BYTES.refusal(path)}; {_FORM} is meant")
    found: dict[str, float] = {}
    for name, value in _rows(path, data):
        key = _known(path, name, value)
        if key in found:
            raise HeadcountError(f"{path}: {key} has two prices")
        found[key] = _price(path, name, value)
    if not found:
        raise HeadcountError(f"{path}: has no price; {_FORM} is meant")
    return found


def _rows(path: Path, data: bytes) -> Iterable[tuple[str, object]]:
    begin = data.removeprefix(BYTE_ORDER_MARK).lstrip()[:1]
    if begin == b"{":
        return parse_json(data, str(path)).items()
    if begin == b"[":
        listed = b'{"prices": %s}' % data.removeprefix(BYTE_ORDER_MARK)
        return _listed(path, parse_json(listed, str(path))["prices"])
    return _csv_rows(path, data)


def _listed(path: Path, rows: object) -> Iterable[tuple[str, object]]:
    for at, row in enumerate(rows if isinstance(rows, list) else (), 1):
        if not isinstance(row, dict) or set(row) != {"name", "price"}:
            raise HeadcountError(f"{path}: {_FORM} is meant; entry {at:,} is none")
        yield str(row["name"]), row["price"]


def _csv_rows(path: Path, data: bytes) -> Iterable[tuple[str, object]]:
    try:
        text = data.decode("utf-8-sig")
        rows = [row for row in csv.reader(io.StringIO(text)) if any(map(str.strip, row))]
    except (UnicodeDecodeError, csv.Error) as error:
        raise HeadcountError(f"{path}: {_FORM} is meant: {error}") from error
    rows = rows[1:] if rows and _is_heading(rows[0]) else rows
    # Not quoted: an assistant may have been told to name any file.
    wrong = next((at for at, row in enumerate(rows, 1) if len(row) != 2), None)
    if wrong is not None:
        raise HeadcountError(f"{path}: {_FORM} is meant; row {wrong:,} is none")
    return [(name.strip(), value.strip()) for name, value in rows]


def _is_heading(row: list[str]) -> bool:
    """Such as `device,usd_per_hour`: neither a device nor a price."""
    if len(row) != 2:
        return False
    try:
        find_device(row[0].strip())
    except HeadcountError:
        return not _is_number(row[1])
    return False


def _is_number(value: object) -> bool:
    try:
        return isinstance(value, str | int | float) and float(value) == float(value)
    except (ValueError, OverflowError):
        return False


def _known(path: Path, name: str, value: object) -> str:
    try:
        return find_device(name).key
    except HeadcountError as error:
        if not _is_number(value):
            raise HeadcountError(f"{path}: {_FORM} is meant; a row has neither") from error
        raise HeadcountError(f"{path}: {error}") from error


def _price(path: Path, name: str, value: object) -> float:
    try:
        price = float(value) if isinstance(value, str | int | float) else -1.0
    except (ValueError, OverflowError):
        price = -1.0
    if isinstance(value, bool) or not (isfinite(price) and price >= 0):
        raise HeadcountError(f"{path}: the price of {name} is {short(value)}: a number is meant")
    return price
