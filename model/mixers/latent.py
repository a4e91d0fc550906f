"""Attention through one latent for all heads (MLA)."""

from dataclasses import dataclass
from typing import ClassVar

from .state import Keeper, Parts, State, Stateful, fills, tokens_kept


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention(Stateful):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent for all heads.

    The query is projected through `q_lora_rank`, or directly when that is None. K and V come out of
    a latent of `kv_lora_rank` elements, to which `qk_rope_head_dim` rotated elements are added.
    """

    kind: ClassVar[str] = "latent_attention"
    heads: ClassVar[str | None] = "MLA"
    num_key_value_heads: ClassVar[int] = 1

    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    bias: bool = False
    window: int | None = None
    norm_parameters: int = 0  # beside those of the two latents
    other_parameters: int = 0  # gates, sinks, an indexer
    expanded: bool = False  # K and V of every head are kept instead (llama.cpp, older files)
    query_gate: bool = False  # q_b_proj reads two latents, and computes a gate on each value, too
    has_latent: bool = True  # False: it reads another layer's latent, and has no way down to one
    states: tuple[State, ...] = ()

    @property
    def head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def group_size(self) -> int:
        return self.num_attention_heads

    def out_features(self, part: str) -> int:
        """Rows of `q` (q_proj or q_b_proj), `q_a`, `kv_a`, `kv_b` or `o`."""
        return {
            "q": self.num_attention_heads * (self.head_dim + self.v_head_dim * self.query_gate),
            "q_a": self.q_lora_rank or 0,
            "kv_a": self.kv_lora_rank + self.qk_rope_head_dim,
            "kv_b": self.num_attention_heads * (self.qk_nope_head_dim + self.v_head_dim),
            "o": self.hidden_size,
        }[part]

    def in_features(self, part: str) -> int:
        """Columns of the same."""
        return {
            "q": (self.q_lora_rank or 0) * (1 + self.query_gate) or self.hidden_size,
            "q_a": self.hidden_size,
            "kv_a": self.hidden_size,
            "kv_b": self.kv_lora_rank,
            "o": self.num_attention_heads * self.v_head_dim,
        }[part]

    def parameters(self) -> Parts:
        """kv_a_proj_with_mqa and the key half of kv_b_proj count as k, the value half as v."""
        query = self.out_features("q") * self.in_features("q")
        if self.q_lora_rank is not None:
            query += self.q_lora_rank * (self.hidden_size + self.bias)
        down = self.out_features("kv_a") * (self.hidden_size + self.bias) * self.has_latent
        key = self.num_attention_heads * self.qk_nope_head_dim * self.kv_lora_rank
        return Parts(
            q=query,
            k=down + key,
            v=self.num_attention_heads * self.v_head_dim * self.kv_lora_rank,
            o=self.hidden_size * (self.in_features("o") + self.bias),
            norm=(self.q_lora_rank or 0)
            + self.kv_lora_rank * self.has_latent
            + self.norm_parameters,
            other=self.other_parameters,
        )

    def bias_parameters(self) -> int:
        down = (self.q_lora_rank or 0) + self.out_features("kv_a") * self.has_latent
        return (down + self.hidden_size) * self.bias

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        """Latent and rotated key, stored once for all heads (transformers >= 5, vLLM, SGLang)."""
        if not self.has_latent:
            return 0
        kept = tokens_kept(tokens, self.window, engine)
        if self.expanded:
            return kept * self.num_attention_heads * (self.head_dim + self.v_head_dim)
        return kept * self.out_features("kv_a")

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        if not self.has_latent:
            return 0
        kept = tokens_kept(tokens, self.window, "transformers")
        return kept * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        return 0 if fills(self.window, within) else self.key_value_elements(1, 0, engine)
