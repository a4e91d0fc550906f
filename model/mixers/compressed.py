"""Attention over a window and over compressed tokens before it (DeepSeek-V4)."""

from dataclasses import dataclass
from typing import ClassVar

from ..dtypes import Bits, bytes_of
from .state import Keeper, Parts, State, Stateful, fills, tokens_kept


@dataclass(frozen=True, kw_only=True, slots=True)
class CompressedAttention(Stateful):
    """One key that is its own value, kept for a window, and one compressed entry for every `rate`
    tokens (None: the window alone).

    `overlaps` (CSA): each entry also sees the `rate` tokens before its own, and an indexer with
    compressed keys of its own chooses among entries; without (HCA) all entries are read.
    Source: transformers' modeling_deepseek_v4.py.
    """

    kind: ClassVar[str] = "compressed_attention"
    heads: ClassVar[str | None] = "MQA"
    num_key_value_heads: ClassVar[int] = 1

    hidden_size: int
    num_attention_heads: int
    head_dim: int
    q_lora_rank: int
    o_lora_rank: int
    o_groups: int
    window: int
    rate: int | None = None
    overlaps: bool = False
    index_n_heads: int = 0
    index_head_dim: int = 0
    states: tuple[State, ...] = ()

    @property
    def group_size(self) -> int:
        return self.num_attention_heads

    @property
    def v_head_dim(self) -> int:
        return self.head_dim

    def parameters(self) -> Parts:
        """kv_proj counts as k; the compressor, the indexer and the sinks as other."""
        hidden, d, heads = self.hidden_size, self.head_dim, self.num_attention_heads
        other = heads
        for width, inputs in ((d, 0), (self.index_head_dim, self.index_n_heads)):
            if self.rate is not None and width:
                other += self._compressor(width)
                other += inputs * (width * self.q_lora_rank + hidden)
        return Parts(
            q=self.q_lora_rank * (hidden + heads * d),
            k=hidden * d,
            o=self.o_lora_rank * (heads * d + self.o_groups * hidden),
            norm=self.q_lora_rank + d,
            other=other,
        )

    def _compressor(self, width: int) -> int:
        """kv_proj and gate_proj [n*width, h], a bias for each of `rate` positions, a norm."""
        assert self.rate is not None
        columns = width * (1 + self.overlaps)
        return columns * (2 * self.hidden_size + self.rate) + width

    def bias_parameters(self) -> int:
        return 0

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        """The window's keys (transformers keeps them twice when nothing is compressed), closed
        entries, tokens that wait for theirs with their gates, and the tokens before them."""
        kept = tokens_kept(tokens, self.window, engine)
        if self.rate is None:
            return kept * self.head_dim * (2 if engine == "transformers" else 1)
        compressed = self._compressed(tokens, engine)
        return kept * self.head_dim + compressed + self._overlap(tokens)

    def _compressed(self, tokens: int, engine: Keeper) -> int:
        """An engine that allocates beforehand has room for as many tokens as ever wait."""
        assert self.rate is not None
        width = self.head_dim + self.index_head_dim
        most = min(tokens, self.rate - 1)
        waiting = tokens % self.rate if engine == "transformers" else most
        return (tokens // self.rate + 2 * (1 + self.overlaps) * waiting) * width

    def _overlap(self, tokens: int) -> int:
        """Half of what is kept of the last closed entry: its values, and as many gates."""
        if not self.overlaps or self.rate is None or tokens < self.rate:
            return 0
        return self.rate * (self.head_dim + self.index_head_dim)

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        """On average: an entry comes once in `rate` tokens."""
        times = 2 if self.rate is None and engine == "transformers" else 1
        own = 0 if fills(self.window, within) else times * self.head_dim
        if self.rate is None:
            return own
        return own - (-(self.head_dim + self.index_head_dim) // self.rate)

    def state_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        return self.key_value_elements(tokens, encoder_tokens, engine) + self._overlap(tokens)

    def state_bytes(
        self, tokens: int, encoder_tokens: int, bits: Bits, engine: Keeper = "transformers"
    ) -> int:
        """The gates of overlapping tokens stay float32."""
        kept = self.key_value_elements(tokens, encoder_tokens, engine)
        return bytes_of(kept, bits) + bytes_of(self._overlap(tokens), 32)

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Every token, uncompressed, with a key and a value for every head."""
        return tokens * self.num_attention_heads * 2 * self.head_dim
