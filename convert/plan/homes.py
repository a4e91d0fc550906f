"""Which class can hold the result: the source's own where it can have fewer K/V heads, or another
that computes the same function, or a modelling file of our own.

A home turns the source's tensors into steps and its config into the output's. A new one is a row
of `rehome.rows`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from headcount.arch.class_defaults import class_defaults
from headcount.arch.registry import standard_spelling
from headcount.model.divisors import divisors, listed
from headcount.model.mixers import LatentAttention

from . import custom, custom_types, native
from .by_layer import holds_by_layer
from .class_limits import REASONS
from .draft import Draft, HeadsByLayer
from .errors import CannotConvertError, HeadCountError, NoSuchHomeError
from .native_heads import attentions, heads_of, native_heads
from .rehome.config import config
from .rehome.drafting import draft
from .rehome.row import Rehome
from .rehome.rows import find_rehome
from .request import HomeChoice, KeyValueHeads
from .source import Source


@dataclass(frozen=True, kw_only=True, slots=True)
class Home:
    """`steps` drafts the tensors; `config` gives the new config and what changed in it."""

    name: str
    reason: str
    steps: Callable[[Source, HeadsByLayer], Draft]
    config: Callable[[Source, HeadsByLayer], tuple[dict[str, Any], tuple[str, ...]]]


def find_home(
    source: Source, wanted: KeyValueHeads, choice: HomeChoice = "auto"
) -> tuple[Home, HeadsByLayer]:
    """The home of the result and the heads before and after: of kind `choice`, or the first that
    holds it. Raises CannotConvertError, and HeadCountError for a `wanted` that the heads cannot be
    pooled to."""
    where = f"{source.folder}: {source.audit.spec.model_type}"
    _refuse_other_states(source, where)
    errors: list[CannotConvertError | HeadCountError] = []
    for find in HOMES.values() if choice == "auto" else (HOMES[choice],):
        try:
            return find(source, wanted, where)
        except (CannotConvertError, HeadCountError) as error:
            errors.append(error)
    raise min(reversed(errors), key=_telling)


def _telling(error: Exception) -> int:
    """Errors about a number come first: that can be changed. Of several, the last home's: it holds
    more numbers than those before it."""
    if isinstance(error, HeadCountError):
        return 0
    return 2 if isinstance(error, NoSuchHomeError) else 1


def _native(source: Source, wanted: KeyValueHeads, where: str) -> tuple[Home, HeadsByLayer]:
    _refuse_type(source, where)
    heads, new, changes = native_heads(source, wanted)
    keys = " and ".join(source.audit.architecture.attention.key_value_keys)
    home = Home(
        name="native",
        reason=f"its class reads {keys}",
        steps=native.steps,
        config=lambda source, heads: (new, changes),
    )
    return home, heads


def _rehome(source: Source, wanted: KeyValueHeads, where: str) -> tuple[Home, HeadsByLayer]:
    row, misfits = find_rehome(source)
    if row is None:
        reason = "; ".join(misfits)
        error = CannotConvertError if misfits else NoSuchHomeError
        raise error(f"{where}: {reason or 'no other class computes its function'}")
    found = attentions(source.audit.spec)
    if any(cross for _, cross in found):
        raise CannotConvertError(f"{where}: has cross-attention, which its new class has not")
    layers = {
        place: heads_of(mixer, _one_count(row, wanted, mixer.num_key_value_heads, where))
        for place, mixer in found.items()
    }
    home = Home(
        name="rehome",
        reason=row.reason,
        steps=lambda source, heads: draft(row, source, heads.uniform),
        config=lambda source, heads: config(row, source, heads.uniform),
    )
    return home, HeadsByLayer(layers=layers)


def _one_count(row: Rehome, wanted: KeyValueHeads, before: int, where: str) -> int:
    """`wanted`, if the row's class can hold it in all layers."""
    if before == 1:
        raise HeadCountError(f"{where}: has a single K/V head (MQA): no fewer are possible")
    if row.only is not None and wanted != row.only:
        raise HeadCountError(
            f"{where}: no transformers class with its position embeddings holds {wanted} K/V heads;"
            f" --kv-heads {row.only} is possible ({row.reason})"
        )
    if not isinstance(wanted, int) or wanted >= before or before % wanted:
        raise HeadCountError(
            f"{where}: {before} K/V heads; --kv-heads can be {listed(divisors(before)[:-1])}"
            f" ({row.reason})"
        )
    return wanted


def _custom(source: Source, wanted: KeyValueHeads, where: str) -> tuple[Home, HeadsByLayer]:
    if not custom_types.holds(source) and not holds_by_layer(source, wanted):
        raise NoSuchHomeError(f"{where}: no modelling file of ours holds it")
    home = Home(
        name="custom",
        reason=f"{custom.MODELING_FILE.name} beside the weights holds it",
        steps=custom.steps,
        config=custom.config,
    )
    return home, custom.heads(source, wanted)


# In the order of `auto`: engines load a class that they know, and few load code that comes along.
HOMES: Mapping[str, Callable[[Source, KeyValueHeads, str], tuple[Home, HeadsByLayer]]] = {
    "native": _native,
    "rehome": _rehome,
    "custom": _custom,
}


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
    model_type = standard_spelling(model_type)
    for name in (source.text_type, model_type):
        if name in REASONS:
            raise CannotConvertError(f"{where}: {REASONS[name]}")
    if class_defaults(model_type) is None:
        raise CannotConvertError(
            f"{where}: transformers has no class for it (its code comes with the model), so the"
            " result could not be checked"
        )
    if not source.audit.architecture.names.modules:
        raise CannotConvertError(f"{where}: it is not known how its weights hold heads")
