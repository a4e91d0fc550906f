"""What every engine answers of its K/V memory: how many tokens, blocks and requests fit."""

from abc import ABC, abstractmethod
from collections.abc import Sequence


class CachePool(ABC):
    """K/V memory of one rank. `available` is in bytes, one number per pipeline stage."""

    @property
    def block_size(self) -> int | None:
        """Tokens of a block, or page; None where memory is not cut in blocks."""
        return None

    @abstractmethod
    def bytes_per_token(self, within: int | None) -> int:
        """Bytes that a token more of a long request costs a rank, on the stage where it is most,
        once every window is full that fills `within` so many tokens (None: that ever fills)."""

    def bytes_of_first_token(self, within: int | None) -> int:
        """Bytes that one token costs while no window is full."""
        return self.bytes_per_token(0)

    @abstractmethod
    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        """The least bytes of `stage` in which so many requests of `context` tokens fit."""

    def reserved(self, stage: int = 0) -> int:
        """Bytes of `stage` that no request gets."""
        return 0

    @abstractmethod
    def concurrency(self, available: Sequence[int], context: int) -> float:
        """How many requests of `context` tokens fit at once."""

    @abstractmethod
    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        """Tokens of cache, as the engine counts them in its log."""

    def num_blocks(self, available: Sequence[int]) -> int | None:
        """Blocks that fit; None where memory is not cut in blocks."""
        return None

    def of_blocks(self, blocks: int, context: int) -> tuple[int, float] | None:
        """Tokens and concurrency that the engine logs for so many blocks; None where they do not
        follow from blocks alone."""
        return None

    def unlogged(self, logged: int) -> int:
        """The cache memory of which the engine logs `logged` bytes."""
        return logged

    def formula(self, context: int, batch_size: int, stage: int = 0) -> str:
        """`needed` with its numbers."""
        batch = f" x batch {batch_size:,}" if batch_size > 1 else ""
        return f"{self.needed(context, 1, stage):,} B of a request of {context:,} tokens{batch}"

    def notes(self) -> Sequence[str]:
        """What is particular to this engine's figures."""
        return ()


class SequencePool(CachePool):
    """Memory in which each sequence has bytes of its own."""

    @abstractmethod
    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence of `context` tokens."""

    def needed(self, context: int, batch_size: int, stage: int = 0) -> int:
        return self.sequence_bytes(context) * batch_size

    def concurrency(self, available: Sequence[int], context: int) -> float:
        each = self.sequence_bytes(context)
        return max(0, min(available)) / each if each else 0.0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self.concurrency(available, context) * context)
