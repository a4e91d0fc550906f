"""What mixes tokens in a layer: its parameters, and the state that it keeps for decoding.

A mixer holds geometry only. Tokens, batch, element size and engine are arguments. Counts are
elements, for a batch of one. Formulas: W_q is [H*d, h], W_k [KV*d, h], W_v [KV*dv, h] and
W_o [h, H*dv], for hidden size h, H query heads, KV key/value heads and head dims d and dv.
"""

from dataclasses import dataclass, fields
from typing import ClassVar, Literal

# What a transformers cache object holds, or what an engine with preallocated K/V memory stores.
Engine = Literal["transformers", "serving"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Parts:
    """Attention parameters by part; biases count with their matrix."""

    q: int = 0
    k: int = 0
    v: int = 0
    o: int = 0
    norm: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        return self.q + self.k + self.v + self.o + self.norm + self.other

    def __add__(self, more: "Parts") -> "Parts":
        names = (field.name for field in fields(Parts))
        return Parts(**{name: getattr(self, name) + getattr(more, name) for name in names})


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention:
    """Self-attention with its own K/V heads: MHA, GQA or MQA, full or in a window.

    Query heads [j*group_size, (j+1)*group_size) share K/V head j. `window` is the number of tokens
    that a query can see, itself among them. `has_key_value` is False for a layer that reads another
    layer's cache and has no k and v projections; `has_value` for one whose values are its keys;
    `has_query_output` for one whose q and o lie in experts, counted as other.
    """

    kind: ClassVar[str] = "attention"

    hidden_size: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    v_head_dim: int
    window: int | None = None
    q_bias: bool = False
    k_bias: bool = False
    v_bias: bool = False
    o_bias: bool = False
    key_value_size: int | None = None  # width of what k and v read; None: hidden_size
    norm_parameters: int = 0
    other_parameters: int = 0
    has_key_value: bool = True
    has_value: bool = True
    has_query_output: bool = True
    cached: bool = True
    broadcasts_key_value: bool = False  # transformers repeats K/V to all heads before caching

    @property
    def group_size(self) -> int:
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def heads(self) -> str:
        if self.num_key_value_heads == self.num_attention_heads:
            return "MHA"
        return "MQA" if self.num_key_value_heads == 1 else "GQA"

    def out_features(self, part: str) -> int:
        """Rows of the projection `q`, `k`, `v` or `o`, or of a fused one such as `qkv`."""
        width = {
            "q": self.num_attention_heads * self.head_dim,
            "k": self.num_key_value_heads * self.head_dim,
            "v": self.num_key_value_heads * self.v_head_dim,
            "o": self.hidden_size,
        }
        return sum(width[letter] for letter in part)

    def in_features(self, part: str) -> int:
        """Columns of the projection `part`."""
        if part == "o":
            return self.num_attention_heads * self.v_head_dim
        return self.hidden_size if part.startswith("q") else self.key_value_size or self.hidden_size

    def parameters(self) -> Parts:
        return Parts(
            q=self._projection("q", self.q_bias) if self.has_query_output else 0,
            k=self._projection("k", self.k_bias) if self.has_key_value else 0,
            v=self._projection("v", self.v_bias) if self.has_key_value and self.has_value else 0,
            o=self._projection("o", self.o_bias) if self.has_query_output else 0,
            norm=self.norm_parameters,
            other=self.other_parameters,
        )

    def bias_parameters(self) -> int:
        """The biases among `parameters()`."""
        flags = {"q": self.q_bias, "k": self.k_bias, "v": self.v_bias, "o": self.o_bias}
        own = "qkvo" if self.has_key_value else "qo"
        return sum(self.out_features(part) for part in own if flags[part])

    def _projection(self, part: str, bias: bool) -> int:
        return self.out_features(part) * (self.in_features(part) + bias)

    def state_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Engine = "transformers"
    ) -> int:
        """Elements of K and V kept after `tokens` tokens.

        transformers' DynamicSlidingWindowLayer keeps the last window - 1 tokens (the next query
        adds itself); engines that preallocate keep the whole window.
        """
        if not self.cached or not self.has_key_value:
            return 0
        heads = self.num_key_value_heads
        if self.broadcasts_key_value and engine == "transformers":
            heads = self.num_attention_heads
        return self._kept(tokens, engine) * heads * (self.head_dim + self.v_head_dim)

    def _kept(self, tokens: int, engine: Engine) -> int:
        if self.window is None:
            return tokens
        return min(tokens, self.window - 1 if engine == "transformers" else self.window)

    def mha_state_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        """The same with one K/V head per query head: what GQA is measured against."""
        if not self.cached or not self.has_key_value:
            return 0
        kept = self._kept(tokens, "transformers")
        return kept * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_elements(self, engine: Engine = "transformers") -> int:
        """Elements that one more token costs once every window is full."""
        if self.window is not None:
            return 0
        return self.state_elements(1, 0, engine)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossAttention(Attention):
    """Attention over an encoder's output: its state is written once, for `encoder_tokens`."""

    kind: ClassVar[str] = "cross_attention"

    def _kept(self, tokens: int, engine: Engine) -> int:
        raise AssertionError("a cross-attention keeps encoder tokens")

    def state_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Engine = "transformers"
    ) -> int:
        return encoder_tokens * self.num_key_value_heads * (self.head_dim + self.v_head_dim)

    def mha_state_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        return encoder_tokens * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_elements(self, engine: Engine = "transformers") -> int:
        return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): one latent for all heads.

    The query is projected through `q_lora_rank`, or directly when that is None. K and V come out of
    a latent of `kv_lora_rank` elements, to which `qk_rope_head_dim` rotated elements are added.
    """

    kind: ClassVar[str] = "latent_attention"
    heads: ClassVar[str | None] = None
    num_key_value_heads: ClassVar[int] = 1
    window: ClassVar[int | None] = None

    hidden_size: int
    num_attention_heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    bias: bool = False

    @property
    def head_dim(self) -> int:
        return self.qk_nope_head_dim + self.qk_rope_head_dim

    @property
    def group_size(self) -> int:
        return self.num_attention_heads

    def out_features(self, part: str) -> int:
        """Rows of `q` (q_proj or q_b_proj), `q_a`, `kv_a`, `kv_b` or `o`."""
        return {
            "q": self.num_attention_heads * self.head_dim,
            "q_a": self.q_lora_rank or 0,
            "kv_a": self.kv_lora_rank + self.qk_rope_head_dim,
            "kv_b": self.num_attention_heads * (self.qk_nope_head_dim + self.v_head_dim),
            "o": self.hidden_size,
        }[part]

    def in_features(self, part: str) -> int:
        """Columns of the same."""
        return {
            "q": self.q_lora_rank or self.hidden_size,
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
        down = self.out_features("kv_a") * (self.hidden_size + self.bias)
        key = self.num_attention_heads * self.qk_nope_head_dim * self.kv_lora_rank
        return Parts(
            q=query,
            k=down + key,
            v=self.num_attention_heads * self.v_head_dim * self.kv_lora_rank,
            o=self.hidden_size * (self.in_features("o") + self.bias),
            norm=(self.q_lora_rank or 0) + self.kv_lora_rank,
        )

    def bias_parameters(self) -> int:
        down = (self.q_lora_rank or 0) + self.out_features("kv_a")
        return (down + self.hidden_size) * self.bias

    def state_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Engine = "transformers"
    ) -> int:
        """Latent and rotated key, stored once for all heads (transformers >= 5, vLLM, SGLang)."""
        return tokens * self.out_features("kv_a")

    def mha_state_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        return tokens * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_elements(self, engine: Engine = "transformers") -> int:
        return self.state_elements(1)


Mixer = Attention | CrossAttention | LatentAttention
