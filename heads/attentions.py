"""The attentions of a decoder by the audit's spec, and the patterns that belong to them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from headcount.model.errors import UnsupportedModelError
from headcount.model.mixers import Attention, LatentAttention
from headcount.model.spec import ModelSpec

HeadMixer = Attention | LatentAttention


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderAttention:
    """One attention: the layer that it is in, and its heads. `nth` tells several of one kind in a
    layer apart."""

    layer: int
    mixer: HeadMixer
    nth: int = 0

    @property
    def is_cross(self) -> bool:
        return self.mixer.kind == "cross_attention"

    @property
    def num_attention_heads(self) -> int:
        return self.mixer.num_attention_heads

    @property
    def num_key_value_heads(self) -> int:
        return self.mixer.num_key_value_heads

    @property
    def group_size(self) -> int:
        """Query heads per K/V head."""
        return self.num_attention_heads // self.num_key_value_heads


def decoder_attentions(
    spec: ModelSpec, name: str, *, has_encoder: bool
) -> tuple[DecoderAttention, ...]:
    """The attentions of the decoder, in the order in which they are computed; those that look at an
    encoding only where there is an encoder. Raises UnsupportedModelError for one without a pattern
    over tokens, and for a model without heads."""
    found = tuple(one for one in _attentions(spec, name) if has_encoder or not one.is_cross)
    if not found:
        raise UnsupportedModelError(
            f"{name}: {spec.model_type} has no attention in its decoder, so no heads to look at"
        )
    return found


def _attentions(spec: ModelSpec, name: str) -> Iterator[DecoderAttention]:
    for layer in spec.layers:
        seen: dict[str, int] = {}
        for mixer in layer.mixers if layer.stack == "decoder" else ():
            if mixer.kind == "recurrent":
                continue
            if not isinstance(mixer, HeadMixer):
                raise UnsupportedModelError(
                    f"{name}: {spec.model_type} has {mixer.kind} in layer {layer.index}, whose"
                    " scores are over compressed blocks, not tokens: its heads have no pattern"
                )
            nth = seen.get(mixer.kind, 0)
            seen[mixer.kind] = nth + 1
            yield DecoderAttention(layer=layer.index, mixer=mixer, nth=nth)


def check_patterns(
    attentions: Sequence[DecoderAttention], heads: Sequence[int], name: str, model_type: str
) -> None:
    """Raises UnsupportedModelError unless the patterns that were seen, with these numbers of heads,
    are those of `attentions`."""
    wanted = [attention.num_attention_heads for attention in attentions]
    if list(heads) != wanted:
        raise UnsupportedModelError(
            f"{name}: transformers' class for {model_type} returns {len(heads)} attention patterns"
            f" (heads: {_few(heads)}), its config describes {len(wanted)} ({_few(wanted)}): which"
            " pattern belongs to which head cannot be told"
        )


def _few(heads: Sequence[int]) -> str:
    return ", ".join(map(str, heads[:8])) + ("…" if len(heads) > 8 else "")
