"""A config.json on standard input."""

import sys

from headcount.model import limits
from headcount.model.errors import HeadcountError, InvalidConfigError

from .found import FoundModel
from .json_file import parse_json

_NAME = "standard input"


def read_standard_input() -> FoundModel:
    """The config that is piped in. Raises HeadcountError, also where nothing is."""
    stream = sys.stdin
    if stream is None or stream.closed or stream.isatty():
        raise HeadcountError(f"-: {_NAME} is not redirected: pipe a config.json into it")
    limit = limits.JSON_BYTES
    data = stream.buffer.read(limit.most + 1)
    if not data:
        raise HeadcountError(f"-: {_NAME} is empty: pipe one config.json into it, once")
    if len(data) > limit.most:
        raise InvalidConfigError(limit.refusal(_NAME))
    config = parse_json(data, _NAME, allow_non_finite=True)
    return FoundModel(kind="config", id="-", where=_NAME, config=config)
