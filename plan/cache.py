"""The KV cache of one rank as an engine with preallocated K/V memory stores it.

Equal layers are counted once: a search evaluates the sum many times.
"""

from collections import Counter
from dataclasses import dataclass

from headcount.model.mixers import Attention, LatentAttention, Mixer, Recurrent
from headcount.model.spec import ModelSpec

from .parallel import rank_mixer


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCache:
    """`mixers` are the distinct ones that keep something, each with its number of layers."""

    mixers: tuple[tuple[Mixer, int], ...]
    encoder_tokens: int
    bits: int

    def bytes_per_sequence(self, tokens: int) -> int:
        """Bytes that one sequence of `tokens` tokens keeps; windows keep no more than they are."""
        return sum(count * self._bytes(mixer, tokens) for mixer, count in self.mixers)

    def bytes_per_token(self) -> int:
        """Bytes that one more token costs once every window is full."""
        return sum(
            count * mixer.growing_bytes(self.bits, "serving") for mixer, count in self.mixers
        )

    def bytes_of_first_token(self) -> int:
        """Bytes that one token costs while no window is full: every layer keeps it."""
        return sum(
            count * (self._bytes(mixer, 1) - self._bytes(mixer, 0)) for mixer, count in self.mixers
        )

    def formula(self, tokens: int, batch_size: int) -> str:
        """The sum with its numbers, one addend per kind of layer."""
        simple = [(m, n) for m, n in self.mixers if _is_keys_and_values(m)]
        addends = [self._addend(mixer, count, tokens) for mixer, count in simple]
        sums = [f"({' + '.join(addends)}) x {self.bits} bit"] if addends else []
        sums += [
            f"{count} layers x {self._bytes(mixer, tokens):,} bytes of {_name(mixer)}"
            for mixer, count in self.mixers
            if not _is_keys_and_values(mixer)
        ]
        if not sums:
            return "nothing is kept"
        batch = f" x batch {batch_size:,}" if batch_size > 1 else ""
        return (
            f"({' + '.join(sums)}){batch}" if len(sums) > 1 and batch else " + ".join(sums) + batch
        )

    def _bytes(self, mixer: Mixer, tokens: int) -> int:
        return mixer.state_bytes(tokens, self.encoder_tokens, self.bits, "serving")

    def _addend(self, mixer: Mixer, count: int, tokens: int) -> str:
        elements = mixer.key_value_elements(tokens, self.encoder_tokens, "serving")
        if isinstance(mixer, LatentAttention):
            width = mixer.out_features("kv_a")
            size = f"({mixer.kv_lora_rank} + {mixer.qk_rope_head_dim})"
        else:
            assert isinstance(mixer, Attention)
            width = mixer.num_key_value_heads * (mixer.head_dim + mixer.v_head_dim)
            size = (
                f"{mixer.num_key_value_heads} K/V heads x ({mixer.head_dim} + {mixer.v_head_dim})"
            )
        return f"{count} layers x {elements // width:,} tokens x {size}"


def _is_keys_and_values(mixer: Mixer) -> bool:
    return isinstance(mixer, (Attention, LatentAttention)) and not mixer.states


def _name(mixer: Mixer) -> str:
    """What a state that is more than keys and values is called in a formula."""
    if isinstance(mixer, Recurrent):
        return f"{mixer.form} state"
    return f"{mixer.kind.replace('_', ' ')} state"


def rank_cache(spec: ModelSpec, *, tp: int, encoder_tokens: int, bits: int) -> RankCache:
    """The cache of one of `tp` ranks, which must be a valid number for `spec`."""
    mixers = Counter(rank_mixer(mixer, tp) for layer in spec.layers for mixer in layer.mixers)
    kept = tuple((m, n) for m, n in mixers.items() if m.state_elements(1, 1, "serving"))
    return RankCache(mixers=kept, encoder_tokens=encoder_tokens, bits=bits)
