"""The model of a page: the mixers that its numbers are taken from."""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

from headcount.audit.audit_report import decoding_layers
from headcount.audit.audit_tables import geometry
from headcount.audit.audited import Audit
from headcount.model.mixers import Attention, LatentAttention, Mixer
from headcount.model.sizes import AuditRequest, Sizes, fill_in
from headcount.model.spec import ModelSpec
from headcount.model.units import key_value_heads as in_words

from .page import product, with_rest

_KINDS_SHOWN = 4
_Kind = TypeVar("_Kind", Attention, LatentAttention)


class Subject(NamedTuple):
    """A model as audited, and what its cache is sized for: its own maximum and dtype."""

    audit: Audit
    sizes: Sizes

    @property
    def spec(self) -> ModelSpec:
        return self.audit.spec

    @property
    def element_bytes(self) -> int:
        """Of the cache, in the model's dtype."""
        return int(self.sizes.bits) // 8

    @property
    def mixers(self) -> "Counter[Mixer]":
        """Each kind of mixer of the decoder, or of the encoder where there is none, with the number
        of layers that have it."""
        return Counter(m for layer in decoding_layers(self.spec) for m in layer.mixers)

    @property
    def attention(self) -> Attention | None:
        """The commonest attention with keys and values of its own; None: there is none."""
        return _commonest(
            (m, n)
            for m, n in self.mixers.items()
            if isinstance(m, Attention)
            and m.kind == "attention"
            and m.has_key_value
            and m.owns_parameters
        )

    @property
    def latent(self) -> LatentAttention | None:
        """The commonest latent attention that keeps a latent; None: there is none."""
        return _commonest(
            (m, n)
            for m, n in self.mixers.items()
            if isinstance(m, LatentAttention) and m.has_latent and not m.expanded
        )


def subject_of(audit: Audit) -> Subject:
    return Subject(audit, fill_in(audit.spec, AuditRequest()))


def _commonest(counted: Iterator[tuple[_Kind, int]]) -> _Kind | None:
    """Of kinds that are as common the first."""
    found = max(counted, key=lambda one: one[1], default=None)
    return None if found is None else found[0]


def held(subject: Subject) -> Iterator[str]:
    """The model's kinds of mixers, each as `32 x GQA: 32 heads, 8 K/V heads, head_dim 128`."""
    kinds = Counter(
        geometry(layer, mixer) for layer in decoding_layers(subject.spec) for mixer in layer.mixers
    ).most_common()
    for (name, heads, key_value_heads, _, head_dim, window), count in kinds[:_KINDS_SHOWN]:
        parts = (
            f"{heads} heads" if heads else "",
            in_words(key_value_heads)
            if isinstance(key_value_heads, int) and key_value_heads
            else "",
            f"head_dim {head_dim}" if head_dim else "",
            f"window {window:,}" if isinstance(window, int) else "",
        )
        yield f"{count} x {name}: {', '.join(filter(None, parts))}".removesuffix(": ")
    if len(kinds) > _KINDS_SHOWN:
        yield f"and {len(kinds) - _KINDS_SHOWN} more kinds: `headcount audit` lists them"


def key_value_terms(mixer: Mixer) -> tuple[str, int]:
    """What a token's K and V are in one layer, as `2 x 8 x 128`, and how many elements that is."""
    if isinstance(mixer, LatentAttention) and not mixer.expanded:
        rank, rotated = mixer.kv_lora_rank, mixer.qk_rope_head_dim
        return f"({rank:,} + {rotated:,})", rank + rotated
    if not isinstance(mixer, Attention | LatentAttention):
        elements = mixer.key_value_elements(1)
        return f"{elements:,}", elements
    latent = isinstance(mixer, LatentAttention)
    heads = mixer.num_attention_heads if latent else mixer.num_key_value_heads
    both = mixer.head_dim + mixer.v_head_dim
    if mixer.head_dim == mixer.v_head_dim:
        return product(2, heads, mixer.head_dim), heads * both
    return f"{heads:,} x ({mixer.head_dim:,} + {mixer.v_head_dim:,})", heads * both


def token_bytes(subject: Subject, mixer: Mixer) -> int:
    """Bytes that the first token costs in one layer, as the audit sums them."""
    bits = subject.sizes.bits
    return mixer.state_bytes(1, 0, bits) - mixer.state_bytes(0, 0, bits)


def token_terms(subject: Subject, mixer: Mixer) -> str:
    """The same with the model's numbers: `2 x 8 x 128 x 2`, and what is kept besides."""
    terms, elements = key_value_terms(mixer)
    each = subject.element_bytes
    repeats = getattr(mixer, "broadcasts_key_value", False)
    why = "transformers repeats K/V to all heads" if repeats else "other state"
    return with_rest(f"{terms} x {each}", elements * each, token_bytes(subject, mixer), why)
