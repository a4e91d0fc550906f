"""A model as its layers: the type that everything downstream computes from. No I/O, only sums."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from .dtypes import Bits
from .mixers import Keeper, Mixer, Parts


class MixerKey(NamedTuple):
    """Where the tensors of a mixer stand in a file: the list of layers, the number in it, whether
    it is the cross-attention, and which one of several attentions under one number."""

    stack: str
    number: int
    cross: bool
    nth: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One block. `stack` is `decoder`, `encoder`, or the tower's name in a model of two towers.

    `home` is a word in the names of its tensors where a stack is stored as several lists, `number`
    the one that its tensors carry if that is not `index`, and `nth` which attention of several
    under that number is its first.
    """

    index: int
    mixers: tuple[Mixer, ...]
    stack: str = "decoder"
    shares_cache_with: int | None = None
    home: str | None = None
    number: int | None = None
    nth: int = 0

    @property
    def stored_in(self) -> str:
        """The list of layers that holds its tensors."""
        return self.home or self.stack

    @property
    def stored_as(self) -> int:
        """The number that its tensors carry."""
        return self.index if self.number is None else self.number

    @property
    def is_again(self) -> bool:
        """Whether it runs the weights of another layer, so that it has no tensors of its own."""
        return bool(self.mixers) and all(
            not getattr(mixer, "owns_parameters", True) for mixer in self.mixers
        )

    def keyed_mixers(self) -> tuple[tuple[MixerKey, Mixer], ...]:
        """Each mixer with the key under which headers are sorted to it.

        The headers of a recurrent mixer are not sorted, and a mixer that runs another's weights has
        none: their keys are those of no tensor.
        """
        keyed: list[tuple[MixerKey, Mixer]] = []
        seen = {False: self.nth, True: self.nth}
        for mixer in self.mixers:
            cross, stack = mixer.kind == "cross_attention", self.stored_in
            if mixer.kind == "recurrent":
                stack = f"{stack}, recurrent"
            elif not getattr(mixer, "owns_parameters", True):
                stack = f"{stack}, again"
            key = MixerKey(stack, self.stored_as, cross, seen[cross])
            seen[cross] += mixer.kind != "recurrent"
            keyed.append((key, mixer))
        return tuple(keyed)

    def parameters(self) -> Parts:
        """Those of attention: every mixer but recurrent ones."""
        parts = (mixer.parameters() for mixer in self.mixers if mixer.kind != "recurrent")
        return sum(parts, Parts())

    def cache_bytes(
        self, *, tokens: int, encoder_tokens: int, batch_size: int, bits: Bits, engine: Keeper
    ) -> int:
        return sum(
            mixer.state_bytes(tokens, encoder_tokens, bits, engine) * batch_size
            for mixer in self.mixers
        )


class Assumption(NamedTuple):
    """What was `taken` for granted `about` a model that nothing describes, and by which key, or for
    want of one. `doubt`: what in the config speaks against it."""

    about: str
    taken: str
    source: str
    doubt: str | None = None


class Origin(NamedTuple):
    """Where a resolved value came from: `config.json`, `class default`, `derived`, `weights`."""

    value: object
    source: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelSpec:
    """A model's layers and the few facts that the formulas need.

    `dtype` is what its cache holds unless another is asked for, and `dtype_source` says whose that
    is. `parameters` is None where neither a header, the catalogue nor the architecture can say;
    `parameters_unknown` is a clause that says why the config does not.
    `assumptions`: what was assumed where nothing describes the model_type, whose config was read by
    the standard names; empty for a type that is known.
    `origins` maps a field's name to its value and where that came from.
    """

    model_type: str
    layers: tuple[Layer, ...]
    hidden_size: int
    vocab_size: int | None
    dtype: str | None
    max_position_embeddings: int | None
    encoder_tokens: int
    tie_word_embeddings: bool
    dtype_source: str = "the model's dtype"
    parameters: int | None = None
    parameters_source: str | None = None
    parameters_unknown: str | None = None
    assumptions: tuple[Assumption, ...] = ()
    origins: Mapping[str, Origin] = field(default_factory=dict)

    @property
    def assumes_encoder_tokens(self) -> bool:
        """Whether nothing in the config says how long an encoding is."""
        origin = self.origins.get("encoder_tokens")
        return origin is not None and origin.source.startswith("assumed")

    @property
    def assumed(self) -> bool:
        """Whether nothing describes the model_type."""
        return bool(self.assumptions)

    @property
    def attention_parameters(self) -> int:
        return sum(layer.parameters().total for layer in self.layers)

    @property
    def is_cached(self) -> bool:
        """Whether decoding keeps anything at all: False for encoders."""
        return any(mixer.state_elements(1, 1) for layer in self.layers for mixer in layer.mixers)

    def cache_bytes(
        self,
        *,
        tokens: int,
        batch_size: int = 1,
        bits: Bits = 16,
        encoder_tokens: int | None = None,
        engine: Keeper = "transformers",
    ) -> int:
        """Bytes that `engine` keeps for `batch_size` sequences of `tokens` tokens each."""
        encoder = self.encoder_tokens if encoder_tokens is None else encoder_tokens
        return sum(
            layer.cache_bytes(
                tokens=tokens,
                encoder_tokens=encoder,
                batch_size=batch_size,
                bits=bits,
                engine=engine,
            )
            for layer in self.layers
        )

    def longest(self, context: int) -> int | None:
        """The most tokens that a sequence has: the model's maximum, or a `context` beyond it. None
        where the model states none."""
        most = self.max_position_embeddings
        return None if most is None else max(most, context)

    def is_made_for(self, context: int) -> bool:
        """Whether the model states no maximum of tokens that is less, or caches none."""
        most = self.max_position_embeddings
        return most is None or context <= most or not self.is_cached

    def cache_bytes_per_token(
        self, *, bits: Bits = 16, engine: Keeper = "transformers", within: int | None = None
    ) -> int:
        """Bytes that one more token of one sequence costs once every window is full. One that no
        sequence of `within` tokens fills (None: of the model's maximum) is none."""
        most = self.max_position_embeddings if within is None else within
        return sum(
            mixer.growing_bytes(bits, engine, most)
            for layer in self.layers
            for mixer in layer.mixers
        )

    def constant_state_bytes(self, *, batch_size: int = 1, bits: Bits = 16) -> int:
        """Bytes of state that does not grow: recurrent and convolution states."""
        return batch_size * sum(
            mixer.constant_bytes(bits) for layer in self.layers for mixer in layer.mixers
        )

    def cache_bytes_of_first_token(self, *, bits: Bits = 16) -> int:
        """Bytes that one token costs while no window is full: every layer keeps it."""
        return sum(
            mixer.state_bytes(1, 0, bits) - mixer.state_bytes(0, 0, bits)
            for layer in self.layers
            for mixer in layer.mixers
        )

    def mha_cache_bytes(self, *, tokens: int, encoder_tokens: int, bits: Bits = 16) -> int:
        """Bytes for one sequence if every query head had its own K/V head."""
        return sum(
            mixer.mha_bytes(tokens, encoder_tokens, bits)
            for layer in self.layers
            for mixer in layer.mixers
        )
