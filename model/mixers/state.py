"""What all mixers share: parameters by part, and state that is counted in elements and bytes."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from ..dtypes import Bits, bytes_of

# Who keeps it: a transformers cache object, or an engine with preallocated K/V memory.
Keeper = Literal["transformers", "serving"]


class Parts(NamedTuple):
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

    def __add__(self, more: "Parts") -> "Parts":  # type: ignore[override]
        names = Parts._fields
        return Parts(**{name: getattr(self, name) + getattr(more, name) for name in names})


class State(NamedTuple):
    """What a mixer keeps beside K and V, or instead of them.

    `fixed` elements whatever the length, and `per_token` for each of the last `limit` (None: of
    all) of the tokens that it `sees`: the decoder's, the encoder's, or the encoder's in front of
    the decoder's. `bits` is None for what follows the dtype of the cache. `since`: nothing is kept
    before that many tokens. `columns`: the kernel of a convolution, of which transformers keeps all
    columns, and an engine all but the newest. `key_value`: these are keys and values, of other
    tokens than the text's, and grow and shrink with the K/V heads. `values`: so many of `per_token`
    are values, for an engine that keeps them in another type than keys.
    """

    fixed: int = 0
    per_token: int = 0
    limit: int | None = None
    bits: int | None = None
    sees: Literal["decoder", "encoder", "both"] = "decoder"
    since: int = 0
    columns: int | None = None
    key_value: bool = False
    values: int = 0

    def with_heads(self, count: int, before: int) -> "State":
        """The same of `count` K/V heads instead of `before`, where it is keys and values."""
        if not self.key_value:
            return self
        fixed, per_token = (size // before * count for size in (self.fixed, self.per_token))
        return self._replace(fixed=fixed, per_token=per_token)

    def elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        if tokens < self.since:
            return 0
        seen = tokens * (self.sees != "encoder") + encoder_tokens * (self.sees != "decoder")
        kept = seen if self.limit is None else min(seen, self.limit)
        return self.fixed_elements(engine) + kept * self.per_token

    def fixed_elements(self, engine: Keeper = "transformers") -> int:
        if self.columns is None or engine == "transformers":
            return self.fixed
        return self.fixed * (self.columns - 1) // self.columns

    def growing_elements(self, within: int | None = None) -> int:
        grows = not fills(self.limit, within) and self.sees != "encoder"
        return self.per_token if grows else 0


class Stateful:
    """The state of a mixer: K and V, which follow the dtype of the cache, and its `states`.

    A mixer says what its K and V are in `key_value_elements` and `growing_key_value_elements`.
    """

    __slots__ = ()
    states: tuple[State, ...]

    def key_value_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        raise NotImplementedError

    def growing_key_value_elements(
        self, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        raise NotImplementedError

    def state_elements(
        self, tokens: int, encoder_tokens: int = 0, engine: Keeper = "transformers"
    ) -> int:
        """Elements of everything that is kept after `tokens` tokens, whatever their dtype."""
        own = sum(state.elements(tokens, encoder_tokens, engine) for state in self.states)
        return self.key_value_elements(tokens, encoder_tokens, engine) + own

    def growing_elements(self, engine: Keeper = "transformers", within: int | None = None) -> int:
        """Elements that one more token costs once every window is full that fills `within` so many
        tokens (None: that ever fills)."""
        own = sum(state.growing_elements(within) for state in self.states)
        return self.growing_key_value_elements(engine, within) + own

    def state_bytes(
        self, tokens: int, encoder_tokens: int, bits: Bits, engine: Keeper = "transformers"
    ) -> int:
        """Bytes of the same for a cache of `bits` bits; state with bits of its own keeps them."""
        kept = self.key_value_elements(tokens, encoder_tokens, engine)
        own = ((s.elements(tokens, encoder_tokens, engine), s.bits) for s in self.states)
        return _bytes(((kept, None), *own), bits)

    def growing_bytes(
        self, bits: Bits, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        """Bytes of the same."""
        own = ((state.growing_elements(within), state.bits) for state in self.states)
        return _bytes(((self.growing_key_value_elements(engine, within), None), *own), bits)

    def mha_key_value_elements(self, tokens: int, encoder_tokens: int = 0) -> int:
        """Elements of K and V with one K/V head per query head."""
        raise NotImplementedError

    @property
    def mha_states(self) -> tuple[State, ...]:
        """The states with one K/V head per query head."""
        return self.states

    def mha_bytes(self, tokens: int, encoder_tokens: int, bits: Bits) -> int:
        """Bytes of everything if every query head had its own K/V head."""
        kept = self.mha_key_value_elements(tokens, encoder_tokens)
        own = ((s.elements(tokens, encoder_tokens), s.bits) for s in self.mha_states)
        return _bytes(((kept, None), *own), bits)

    def constant_bytes(self, bits: Bits) -> int:
        """Bytes of state that is there from the first token and never grows."""
        return _bytes(((state.fixed, state.bits) for state in self.states), bits)


def tokens_kept(tokens: int, window: int | None, engine: Keeper) -> int:
    """How many of `tokens` tokens a layer with this window keeps; None: it has none.

    transformers' DynamicSlidingWindowLayer keeps the last window - 1 (the next query adds itself);
    engines that preallocate keep the whole window.
    """
    if window is None:
        return tokens
    return min(tokens, window - 1 if engine == "transformers" else window)


def fills(window: int | None, within: int | None) -> bool:
    """Whether a window is full before the last of `within` tokens; None: there is no last one."""
    return window is not None and (within is None or window < within)


def _bytes(kept: Iterable[tuple[int, int | None]], bits: Bits) -> int:
    """Bytes of (elements, own bits or None): those without own bits are rounded up together."""
    kept = tuple(kept)
    common = sum(elements for elements, own in kept if own is None)
    return bytes_of(common, bits) + sum(bytes_of(n, own) for n, own in kept if own is not None)
