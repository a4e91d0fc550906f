"""Types that cannot be converted, whatever number of heads is asked for."""

from collections.abc import Callable, Iterable

from headcount.arch.architecture import Architecture
from headcount.arch.class_defaults import class_defaults
from headcount.arch.model_classes import model_classes
from headcount.arch.our_types import base_type, is_grouped
from headcount.arch.registry import architecture_of, standard_spelling
from headcount.model.decoder_attentions import no_key_value_heads
from headcount.model.mixers import Attention, Mixer

from ..errors import CannotConvertError, NoSuchHomeError
from ..request import KeyValueHeads
from ..source import ConversionSource

TypeCheck = Callable[[ConversionSource], str | None]


def refuse(source: ConversionSource, checks: Iterable[TypeCheck]) -> None:
    """Raises CannotConvertError with the first reason that a check gives."""
    reason = next((reason for check in checks if (reason := check(source))), None)
    if reason is not None:
        raise CannotConvertError(f"{source.label}: {reason}")


def _mixers(source: ConversionSource) -> list[Mixer]:
    return [mixer for layer in source.audit.spec.layers for mixer in layer.mixers]


def _states(source: ConversionSource) -> str | None:
    return no_key_value_heads(source.audit.spec, source.attention_map.mixers)


# A model that keeps no K/V heads.
STATES: tuple[TypeCheck, ...] = (_states,)


def _not_exact(source: ConversionSource) -> str | None:
    return source.architecture.conversion.refused or source.whole.conversion.refused


def _no_class(source: ConversionSource) -> str | None:
    if class_defaults(standard_spelling(source.model_type)) is not None:
        return None
    return (
        "transformers has no class for it (its code comes with the model), so the result could not"
        " be checked"
    )


def _no_names(source: ConversionSource) -> str | None:
    known = source.architecture.names.modules
    return None if known else "it is not known how its weights hold heads"


# A class that stays and cannot hold fewer K/V heads exactly. What is known of a type comes first.
NATIVE: tuple[TypeCheck, ...] = (_not_exact, _no_class, _no_names)


def _more_than_key_value(source: ConversionSource) -> str | None:
    for mixer in source.attention_map.mixers.values():
        other = any(not state.key_value for state in mixer.states)
        if other or mixer.query_gate or mixer.head_dim != mixer.v_head_dim:
            return "its attention keeps more than K and V heads"
    return None


# What our modelling file does not make grouped.
CUSTOM: tuple[TypeCheck, ...] = (_more_than_key_value,)


def _crossed(source: ConversionSource) -> str | None:
    if any(cross for _, cross in source.attention_map.mixers):
        return "has cross-attention, which its new class has not"
    return None


REHOME: tuple[TypeCheck, ...] = (_crossed,)


def check_held_by_ours(
    source: ConversionSource, wanted: KeyValueHeads, *, is_pruned: bool = False
) -> None:
    """Raises NoSuchHomeError for a type that our modelling file is not for."""
    by_layer = is_pruned or not isinstance(wanted, int)
    if not _keeps_query_heads(source) and not (by_layer and _holds_by_layer(source)):
        raise NoSuchHomeError(f"{source.label}: no modelling file of ours holds it")


def ignores_count(model_type: str) -> bool:
    """Whether the class of this type, or of the language model that it nests by default, ignores
    num_key_value_heads, and ours can take its place."""
    found = architecture_of(base_type(_default_text_type(model_type)))
    return found is not None and _ignores_count(found, model_type)


def _ignores_count(language_model: Architecture, model_type: str) -> bool:
    shape, keys = language_model.attention, language_model.config
    if keys.text is not None or shape.cached is False or shape.caches == "hidden states":
        return False
    return shape.kv_heads_from != "config" and bool(model_classes(model_type))


def _keeps_query_heads(source: ConversionSource) -> bool:
    """Whether the source's class keeps one K/V head per query head, in every layer of its decoder,
    and ignores num_key_value_heads; or is already one of ours."""
    if is_grouped(source.model_type):
        return True
    layers = [layer for layer in source.audit.spec.layers if layer.stack == "decoder"]
    mixers = [mixer for layer in layers for mixer in layer.mixers]
    mha = all(
        isinstance(mixer, Attention)
        and mixer.keeps_key_value
        and mixer.num_key_value_heads == mixer.num_attention_heads
        for mixer in mixers
    )
    return bool(mixers and mha and _ignores_count(source.architecture, source.model_type))


def _holds_by_layer(source: ConversionSource) -> bool:
    """Whether the source's class reads one number for all layers, and all have the same K/V heads
    now. Ours shrinks the projections of each."""
    known = source.spelled
    if known is None or not known.conversion.by_layer:
        return False
    if not model_classes(base_type(source.model_type)):
        return False
    counts = {mixer.num_key_value_heads for mixer in source.attention_map.mixers.values()}
    plain = all(type(mixer) is Attention and mixer.cached for mixer in _mixers(source))
    return len(counts) == 1 and plain


def _default_text_type(model_type: str) -> str:
    """The type itself, unless its language model is nested."""
    found, known = architecture_of(base_type(model_type)), class_defaults(model_type)
    if found is None or found.config.text is None or known is None:
        return model_type
    nested = (known.defaults.get(found.config.text) or {}).get("model_type")
    return _default_text_type(nested) if isinstance(nested, str) else model_type


def no_generating_class(source: ConversionSource, model_type: str) -> CannotConvertError:
    """A config that does not say which class of the type is meant."""
    return CannotConvertError(
        f"{source.folder}: config.json names no architectures, and {model_type} has no class that"
        " generates text: name the class that saved it"
    )


def no_counterpart(source: ConversionSource, name: str, target: str) -> CannotConvertError:
    """A class that no class of the type `target` corresponds to."""
    return CannotConvertError(
        f"{source.folder}: {name} has no counterpart among the classes of {target}"
    )
