"""Which class can hold the result: the source's own where it reads num_key_value_heads, or another
that computes the same function.

A home turns the source's tensors into steps and its config into the output's. A new one is a row
of `REHOMES`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.audit.divisors import divisors, listed
from headcount.audit.family.bodies import BODIES
from headcount.audit.family.class_defaults import class_defaults
from headcount.audit.family.layers import decoder, standard_key_value_heads
from headcount.audit.family.row import Family
from headcount.audit.family.table import SPELLINGS
from headcount.audit.family.wrappers import WRAPPERS
from headcount.audit.mixers import Attention, LatentAttention
from headcount.audit.spec import ModelSpec

from . import custom, gpt2, native, native_config
from .draft import Draft, Heads
from .errors import CannotConvertError, HeadCountError
from .source import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """`steps` drafts the tensors; `config` gives the new config and what changed in it."""

    name: str
    reason: str
    steps: Callable[[Source, Heads], Draft]
    config: Callable[[Source, Heads], tuple[dict[str, Any], tuple[str, ...]]]


NATIVE = Home(
    name="native",
    reason="its class reads num_key_value_heads",
    steps=native.steps,
    config=native_config.config,
)
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
            steps=gpt2.steps,
            config=gpt2.config,
        ),
    ),
}


def find_home(source: Source, wanted: int) -> tuple[Home, Heads]:
    """The home of the result and the heads before and after. Raises CannotConvertError, and
    HeadCountError for a `wanted` that the heads cannot be pooled to."""
    spec, family = source.audit.spec, source.audit.family
    where = f"{source.folder}: {spec.model_type}"
    rehome = REHOMES.get(spec.model_type)
    if (rehome is None or wanted != rehome[0]) and custom.holds(source):
        return CUSTOM, _heads(custom.the_mixer(source), wanted, where)
    mixer = _the_mixer(spec, where)
    if rehome is None:
        _refuse_row(spec.model_type, family, where)
    heads = _heads(mixer, wanted, where)
    if rehome is None:
        return NATIVE, heads
    only, home = rehome
    if wanted != only:
        raise HeadCountError(
            f"{where}: no transformers class with its position embeddings holds {wanted} K/V heads;"
            f" --kv-heads {only} is possible ({home.reason})"
        )
    return home, heads


def _the_mixer(spec: ModelSpec, where: str) -> Attention:
    """The attention that all layers have in common but for their windows."""
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
    plain = [mixer for mixer in mixers if type(mixer) is Attention]
    if len(plain) != len(spec.layers) or len(plain) != len(mixers):
        raise CannotConvertError(
            f"{where}: has cross-attention or layers without attention, which convert does not"
            " handle"
        )
    first = plain[0]
    shapes = {(m.num_attention_heads, m.num_key_value_heads, m.head_dim) for m in plain}
    own = all(m.has_key_value and m.has_key and m.has_value and m.owns_parameters for m in plain)
    if any(m.states or m.query_gate for m in plain):
        raise CannotConvertError(
            f"{where}: its attention keeps more than K/V, or has a gate in q_proj, which convert"
            " does not handle"
        )
    if len(shapes) > 1 or not own:
        raise CannotConvertError(
            f"{where}: its layers differ in heads or share K/V, which one num_key_value_heads"
            " cannot say"
        )
    return first


def _refuse_row(model_type: str, family: Family, where: str) -> None:
    """Raises CannotConvertError unless the family's class holds separate, grouped K/V heads."""
    fused = sorted(m for m, part in family.names.modules.items() if part in ("qkv", "kv"))
    if fused:
        raise CannotConvertError(
            f"{where}: {fused[0]} holds q, k and v in one tensor; convert handles separate ones"
        )
    if family.key_value_heads is not standard_key_value_heads:
        raise CannotConvertError(
            f"{where}: its class has one K/V head per query head and ignores num_key_value_heads,"
            " so nothing could load the result"
        )
    if family.build is not decoder or family.per_layer is not None:
        raise CannotConvertError(
            f"{where}: its layers are of several kinds, which convert does not handle"
        )
    compared = BODIES.keys() | WRAPPERS.keys()
    if SPELLINGS.get(model_type, model_type) not in compared and class_defaults(model_type):
        raise CannotConvertError(f"{where}: no conversion of this model_type was ever compared")
    if class_defaults(model_type) is None:
        raise CannotConvertError(
            f"{where}: transformers has no class for it (its code comes with the model), so the"
            " result could not be checked"
        )


def _heads(mixer: Attention, wanted: int, where: str) -> Heads:
    """Checks `wanted` against the present K/V heads, which are pooled in equal runs."""
    before = mixer.num_key_value_heads
    if before == 1:
        raise HeadCountError(f"{where}: has a single K/V head (MQA): no fewer are possible")
    if wanted >= before or before % wanted:
        raise HeadCountError(
            f"{where}: {_misfit(before, wanted)}; --kv-heads can be {listed(divisors(before)[:-1])}"
        )
    return Heads(
        num_attention_heads=mixer.num_attention_heads,
        before=before,
        after=wanted,
        head_dim=mixer.head_dim,
    )


def _misfit(before: int, wanted: int) -> str:
    if wanted == before:
        return f"already has {before} K/V heads"
    if wanted > before:
        return f"has {before} K/V heads; {wanted} would be more"
    return f"{before} K/V heads cannot be pooled to {wanted} in equal groups"
