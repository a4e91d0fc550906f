"""A config.json on standard input."""

import sys

from headcount.model.errors import HeadcountError, InvalidConfigError

from .found import FoundModel
from .json_file import MAX_CONFIG_BYTES, parse_json

_NAME = "standard input"


def read_standard_input() -> FoundModel:
    """The config that is piped in. Raises HeadcountError, also where nothing is."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise HeadcountError(f"-: {_NAME} is not redirected: pipe a config.json into it")
    data = stream.buffer.read(MAX_CONFIG_BYTES + 1)
    if not data:
        raise HeadcountError(f"-: {_NAME} is empty: pipe one config.json into it, once")
    if len(data) > MAX_CONFIG_BYTES:
        raise InvalidConfigError(f"{_NAME}: no more than {MAX_CONFIG_BYTES:,} bytes are read")
    config = parse_json(data, _NAME, allow_non_finite=True)
    return FoundModel(kind="config", id="-", where=_NAME, config=config)
