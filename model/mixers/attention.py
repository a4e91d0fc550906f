"""Attention with keys and values of its own, over the sequence or over an encoder's output.

Formulas: W_q is [H*d, h], W_k [KV*d, h], W_v [KV*dv, h] and
W_o [h, H*dv], for hidden size h, H query heads, KV key/value heads and head dims d and dv.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

from .state import Keeper, Parts, State, Stateful, fills, tokens_kept


@dataclass(frozen=True, kw_only=True, slots=True)
class Attention(Stateful):
    """Self-attention with its own K/V heads: MHA, GQA or MQA, full or in a window.

    Query heads [j*group_size, (j+1)*group_size) share K/V head j. `window` is the number of tokens
    that a query can see, itself among them. `has_key_value` is False for a layer that reads another
    layer's cache and has no k and v projections; `has_value` for one whose values are its keys.
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
    query_size: int | None = None  # width of what q reads; None: hidden_size
    value_size: int | None = None  # width of what v reads; None: as k
    output_size: int | None = None  # width of what o reads; None: H*dv
    query_gate: bool = False  # q_proj computes a gate for every element of q, too
    owns_parameters: bool = True  # False: another layer's block is used again (Zamba)
    norm_parameters: int = 0
    other_parameters: int = 0
    has_key_value: bool = True
    has_key: bool = True  # False: the keys are the queries (Reformer's LSH layers)
    has_value: bool = True
    has_query_output: bool = True  # False: q and o lie in experts, counted as other
    cached: bool = True
    broadcasts_key_value: bool = False  # transformers repeats K/V to all heads before caching
    states: tuple[State, ...] = ()

    @property
    def group_size(self) -> int:
        return self.num_attention_heads // self.num_key_value_heads

    @property
    def heads(self) -> str:
        if self.num_key_value_heads == self.num_attention_heads:
            return "MHA"
        return "MQA" if self.num_key_value_heads == 1 else "GQA"

    @property
    def keeps_key_value(self) -> bool:
        """Whether decoding keeps K and V, of the text's tokens or of others."""
        return self.cached or any(state.key_value for state in self.states)

    def with_key_value_heads(self, count: int) -> "Attention":
        """The same attention with `count` K/V heads, in all that it keeps."""
        states = tuple(state.with_heads(count, self.num_key_value_heads) for state in self.states)
        return replace(self, num_key_value_heads=count, states=states)

    @property
    def mha_states(self) -> tuple[State, ...]:
        return self.with_key_value_heads(self.num_attention_heads).states

    def out_features(self, part: str) -> int:
        """Rows of the projection `q`, `k`, `v` or `o`, or of a fused one such as `qkv`."""
        width = {
            "q": self.num_attention_heads * self.head_dim * (1 + self.query_gate),
            "k": self.num_key_value_heads * self.head_dim,
            "v": self.num_key_value_heads * self.v_head_dim,
            "o": self.hidden_size,
            "g": self.num_attention_heads * self.v_head_dim,  # a gate on what o reads
        }
        return sum(width[letter] for letter in part)

    def in_features(self, part: str) -> int:
        """Columns of the projection `part`."""
        if part == "o":
            return self.output_size or self.num_attention_heads * self.v_head_dim
        if part == "v" and self.value_size is not None:
            return self.value_size
        read = self.query_size if part.startswith("q") else self.key_value_size
        return read or self.hidden_size

    def parameters(self) -> Parts:
        return _parameters(self) if self.owns_parameters else Parts()

    def bias_parameters(self) -> int:
        """The biases among `parameters()`."""
        flags = {"q": self.q_bias, "k": self.k_bias, "v": self.v_bias, "o": self.o_bias}
        own = "qkvo" if self.has_key_value else "qo"
        if not self.owns_parameters:
            return 0
        return sum(self.out_features(part) for part in own if flags[part])

    def projection(self, part: str, bias: bool) -> int:
        """Parameters of `q`, `k`, `v` or `o`."""
        return self.out_features(part) * (self.in_features(part) + bias)

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        """Elements of K and V kept after `tokens` tokens."""
        if not self.cached or not self.has_key_value:
            return 0
        heads = self.num_key_value_heads
        if self.broadcasts_key_value and engine == "transformers":
            heads = self.num_attention_heads
        return tokens_kept(tokens, self.window, engine) * heads * (self.head_dim + self.v_head_dim)

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        """The same with one K/V head per query head: what GQA is measured against."""
        if not self.cached or not self.has_key_value:
            return 0
        kept = tokens_kept(tokens, self.window, "transformers")
        return kept * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        if fills(self.window, within):
            return 0
        return self.key_value_elements(1, 0, engine)


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossAttention(Attention):
    """Attention over an encoder's output: its state is written once, for `encoder_tokens`."""

    kind: ClassVar[str] = "cross_attention"

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        if not self.cached:  # computed anew at every step
            return 0
        kept = tokens_kept(encoder_tokens, self.window, engine)
        return kept * self.num_key_value_heads * (self.head_dim + self.v_head_dim)

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        if not self.cached:
            return 0
        kept = tokens_kept(encoder_tokens, self.window, "transformers")
        return kept * self.num_attention_heads * (self.head_dim + self.v_head_dim)

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        return 0


@lru_cache(maxsize=1024)
def _parameters(mixer: Attention) -> Parts:
    """Of one that owns some. Most layers of a model are alike, and are asked many times."""
    writes_key, writes_value = (
        mixer.has_key_value and there for there in (mixer.has_key, mixer.has_value)
    )
    return Parts(
        q=mixer.projection("q", mixer.q_bias) if mixer.has_query_output else 0,
        k=mixer.projection("k", mixer.k_bias) if writes_key else 0,
        v=mixer.projection("v", mixer.v_bias) if writes_value else 0,
        o=mixer.projection("o", mixer.o_bias) if mixer.has_query_output else 0,
        norm=mixer.norm_parameters,
        other=mixer.other_parameters,
    )
