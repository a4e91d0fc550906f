"""The caches of transformers' `generate`: one that grows, and one of a fixed length."""

from collections.abc import Sequence
from dataclasses import dataclass

from headcount.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True, slots=True)
class TransformersPool:
    """Each of `tp` ranks keeps its share. A static cache reserves whole windows and whole contexts
    from the first token; a dynamic one keeps what was seen, of a window all but the newest."""

    spec: ModelSpec
    bits: int
    tp: int
    encoder_tokens: int
    static: bool = False

    @property
    def block_size(self) -> int | None:
        return None

    @property
    def bytes_per_token(self) -> int:
        return -(-self.spec.cache_bytes_per_token(bits=self.bits) // self.tp)

    def sequence_bytes(self, context: int) -> int:
        """Bytes of one sequence of `context` tokens."""
        total = self.spec.cache_bytes(
            tokens=context,
            bits=self.bits,
            encoder_tokens=self.encoder_tokens,
            engine="serving" if self.static else "transformers",
        )
        return -(-total // self.tp)

    def num_blocks(self, available: Sequence[int]) -> int | None:
        return None

    def concurrency(self, available: Sequence[int], context: int) -> float:
        each = self.sequence_bytes(context)
        return max(0, min(available)) / each if each else 0.0

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        return int(self.concurrency(available, context) * context)

    def notes(self) -> Sequence[str]:
        if self.static:
            return ["A static cache (cache_implementation=static) reserves the whole context."]
        return [
            "A dynamic cache grows by copying: for a moment a layer's old and new keys and values"
            " both exist."
        ]
