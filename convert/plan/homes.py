"""Which class can hold the result: the source's own where it can have fewer K/V heads, or another
that computes the same function.

A home turns the source's tensors into steps and its config into the output's. A new one is a row
of `REHOMES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.audit.family.class_defaults import class_defaults
from headcount.audit.family.resolve import read_config
from headcount.audit.family.table import SPELLINGS
from headcount.audit.mixers import LatentAttention

from . import custom, gpt2, native
from .draft import Draft, Heads, HeadsByLayer
from .errors import CannotConvertError, HeadCountError
from .native_heads import attentions, native_heads
from .request import KeyValueHeads
from .source import Source
from .unconvertible import REASONS


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """`steps` drafts the tensors; `config` gives the new config and what changed in it."""

    name: str
    reason: str
    steps: Callable[[Source, HeadsByLayer], Draft]
    config: Callable[[Source, HeadsByLayer], tuple[dict[str, Any], tuple[str, ...]]]


CUSTOM = Home(
    name="custom",
    reason="no class of transformers holds it; modeling_headcount.py beside the weights does",
    steps=custom.steps,
    config=custom.config,
)
# model_type -> (the only count of K/V heads it can take, the home)
REHOMES: Mapping[str, tuple[int, Home]] = {
    "gpt2": (
        1,
        Home(
            name="rehome",
            reason="GPT-2's class has one K/V head per query head; GPTBigCode with multi_query"
            " computes the same function",
            steps=lambda source, heads: gpt2.steps(source, heads.uniform),
            config=lambda source, heads: gpt2.config(source, heads.uniform),
        ),
    ),
}


def find_home(source: Source, wanted: KeyValueHeads) -> tuple[Home, HeadsByLayer]:
    """The home of the result and the heads before and after. Raises CannotConvertError, and
    HeadCountError for a `wanted` that the heads cannot be pooled to."""
    where = f"{source.folder}: {source.audit.spec.model_type}"
    _refuse_other_states(source, where)
    rehome = REHOMES.get(source.audit.spec.model_type)
    if (rehome is None or wanted != rehome[0]) and custom.holds(source):
        return CUSTOM, custom.heads(source, wanted)
    if rehome is not None:
        return _rehome(source, wanted, where)
    _refuse_type(source, where)
    heads, config, changes = native_heads(source, wanted)
    keys = " and ".join(source.audit.family.key_value_keys)
    home = Home(
        name="native",
        reason=f"its class reads {keys}",
        steps=native.steps,
        config=lambda source, heads: (config, changes),
    )
    return home, heads


def _rehome(source: Source, wanted: KeyValueHeads, where: str) -> tuple[Home, HeadsByLayer]:
    only, home = REHOMES[source.audit.spec.model_type]
    found = attentions(source.audit.spec)
    if any(cross for _, cross in found):
        raise CannotConvertError(f"{where}: has cross-attention, which its new class has not")
    before = {mixer.num_key_value_heads for mixer in found.values()}
    if before == {1}:
        raise HeadCountError(f"{where}: has a single K/V head (MQA): no fewer are possible")
    if wanted != only:
        raise HeadCountError(
            f"{where}: no transformers class with its position embeddings holds {wanted} K/V heads;"
            f" --kv-heads {only} is possible ({home.reason})"
        )
    layers = {
        place: Heads(
            num_attention_heads=mixer.num_attention_heads,
            before=mixer.num_key_value_heads,
            after=only,
            head_dim=mixer.head_dim,
        )
        for place, mixer in found.items()
    }
    return home, HeadsByLayer(layers=layers)


def _refuse_other_states(source: Source, where: str) -> None:
    """Raises CannotConvertError for a model that keeps no K/V heads: there is nothing to merge."""
    spec = source.audit.spec
    mixers = [mixer for layer in spec.layers for mixer in layer.mixers]
    if any(isinstance(mixer, LatentAttention) for mixer in mixers):
        raise CannotConvertError(
            f"{where}: latent attention (MLA) keeps one latent for all heads; there are no K/V"
            " heads to pool"
        )
    if not spec.is_cached:
        raise CannotConvertError(
            f"{where}: an encoder keeps no K/V cache: fewer heads save nothing"
        )
    if not attentions(spec):
        raise CannotConvertError(
            f"{where}: its state is not made of K/V heads (recurrent layers, say), so there are"
            " none to merge"
        )


def _refuse_type(source: Source, where: str) -> None:
    """Raises CannotConvertError for a type whose class cannot hold fewer K/V heads exactly."""
    model_type = source.audit.spec.model_type
    model_type = SPELLINGS.get(model_type, model_type)
    text_type = read_config(source.config, where).text.model_type
    for name in (text_type, model_type):
        if name in REASONS:
            raise CannotConvertError(f"{where}: {REASONS[name]}")
    if class_defaults(model_type) is None:
        raise CannotConvertError(
            f"{where}: transformers has no class for it (its code comes with the model), so the"
            " result could not be checked"
        )
    if not source.audit.family.names.modules:
        raise CannotConvertError(f"{where}: it is not known how its weights hold heads")
