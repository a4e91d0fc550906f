"""The K/V memory of one rank as whole sequences take it, without an engine's blocks.

Equal layers are counted once: a search evaluates the sum many times.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import inf

from headcount.model.dtypes import Bits
from headcount.model.mixers import Attention, LatentAttention, LowRankAttention, Mixer, Recurrent

from .engines.pool import SequencePool
from .parallel import rank_mixer
from .planned_model import PlannedModel


@dataclass(frozen=True, kw_only=True, slots=True)
class RankCache(SequencePool):
    """`mixers` are the distinct ones that keep something, each with its number of layers."""

    mixers: tuple[tuple[Mixer, int], ...]
    encoder_tokens: int
    bits: Bits

    def sequence_bytes(self, context: int) -> int:
        """Windows keep no more than they are."""
        return sum(count * self._bytes(mixer, context) for mixer, count in self.mixers)

    def bytes_per_token(self, within: int | None) -> int:
        return sum(
            count * mixer.growing_bytes(self.bits, "serving", within)
            for mixer, count in self.mixers
        )

    def bytes_of_first_token(self, within: int | None) -> int:
        """Every layer keeps it."""
        return sum(
            count * (self._bytes(mixer, 1) - self._bytes(mixer, 0)) for mixer, count in self.mixers
        )

    def concurrency(self, available: Sequence[int], context: int) -> float:
        """Where nothing is kept, there is room for any number."""
        each = self.sequence_bytes(context)
        return max(0, min(available)) / each if each else inf

    def kv_tokens(self, available: Sequence[int], context: int) -> int:
        found = self.concurrency(available, context)
        return 0 if found == inf else int(found * context)

    def formula(self, context: int, batch_size: int, stage: int = 0) -> str:
        """The sum with its numbers, one addend per kind of layer."""
        simple = [(m, n) for m, n in self.mixers if _is_keys_and_values(m)]
        addends = [self._addend(mixer, count, context) for mixer, count in simple]
        sums = [f"({' + '.join(addends)}) x {float(self.bits):g} bit"] if addends else []
        sums += [
            f"{count} layers x {self._bytes(mixer, context):,} bytes of {_name(mixer)}"
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
        elif isinstance(mixer, LowRankAttention):
            width, size = mixer.latent_rank, f"a latent of {mixer.latent_rank}"
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


def rank_cache(model: PlannedModel, *, tp: int, encoder_tokens: int, bits: Bits) -> RankCache:
    """The cache of one of `tp` ranks, which must be a valid number for the model."""
    return RankCache(mixers=_kept(model, tp), encoder_tokens=encoder_tokens, bits=bits)


@lru_cache(maxsize=64)
def _kept(model: PlannedModel, tp: int) -> tuple[tuple[Mixer, int], ...]:
    layers = model.spec.layers
    mixers = Counter(rank_mixer(mixer, tp) for layer in layers for mixer in layer.mixers)
    return tuple((m, n) for m, n in mixers.items() if m.state_elements(1, 1, "serving"))
