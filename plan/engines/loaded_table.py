"""What loading puts on a device beside the stored bytes of the weights."""

from typing import NamedTuple


class LoadedTable(NamedTuple):
    """Bytes on each rank, and why."""

    bytes: int
    formula: str
