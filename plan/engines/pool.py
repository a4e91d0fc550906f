"""What every engine answers of its K/V memory: how many tokens, blocks and requests fit."""

from collections.abc import Sequence
from typing import Protocol


class Pool(Protocol):
    """K/V memory of one rank. `available` is in bytes, one number per pipeline stage."""

    @property
    def block_size(self) -> int | None:
        """Tokens of a block, or page; None where memory is not cut in blocks."""

    @property
    def bytes_per_token(self) -> int:
        """Bytes of the rank that one more token of a long request costs."""

    def num_blocks(self, available: Sequence[int]) -> int | None:
        """Blocks that fit; None where memory is not cut in blocks."""

    def concurrency(self, available: Sequence[int], context: int) -> float:
        """How many requests of `context` tokens fit at once."""

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        """Tokens of cache, as the engine counts them in its log."""

    def notes(self) -> Sequence[str]:
        """What is particular to this engine's figures."""
