"""Models whose keys and values cannot be rebuilt from a latent by a modelling file of ours."""

from headcount.arch.built_classes import type_of_class
from headcount.arch.model_classes import model_classes
from headcount.arch.our_types import is_ours
from headcount.model.mixers import Attention

from ..plan.refusals.types import STATES, TypeCheck, refuse
from ..plan.source import ConversionSource

# Parts of projections that hold nothing but queries, keys and values.
_KNOWN = ({"q"}, {"k"}, {"v"}, {"o"}, {"q", "g"}, {"k", "v"}, {"q", "k", "v"})


def check_latent(source: ConversionSource) -> None:
    """Raises CannotConvertError with the first reason why a source is not for latents."""
    refuse(source, CHECKS)


def _ours(source: ConversionSource) -> str | None:
    if is_ours(source.model_type):
        return "a modelling file of ours holds it already: convert the model that it was made from"
    return None


def _no_class(source: ConversionSource) -> str | None:
    classes = model_classes(source.model_type)
    if source.spelled is None or not classes:
        return "transformers has no class for it that a latent class could extend"
    other = type_of_class(classes.get("AutoModel", ""))
    if other in (None, source.model_type):
        return None
    return f"transformers runs it with the class of {other}, whose latent class reads other configs"


def _nested(source: ConversionSource) -> str | None:
    if source.whole.config.text is None:
        return None
    return (
        "nests its language model, whose classes are built by other ones: no latent class is known"
    )


def _other_stacks(source: ConversionSource) -> str | None:
    found = source.attention_map
    reasons: dict[str, bool] = {
        "has an encoder beside its decoder": any(
            layer.stack != "decoder" for layer in source.audit.spec.layers
        ),
        "has cross-attention, whose keys are of other tokens": any(w[1] for w in found.mixers),
        "has layers that read another's keys and values": bool(found.readers),
        "has layers that its config does not count": bool(found.more),
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _kept(mixer: Attention) -> str | None:
    reasons: dict[str, bool] = {
        "its values are its keys": not mixer.has_value or not mixer.has_key,
        "its attention keeps more than keys and values": bool(mixer.states),
        "its k and v read different inputs": mixer.value_size is not None,
        "an attention of it keeps no cache": not mixer.cached,
    }
    return next((reason for reason, holds in reasons.items() if holds), None)


def _mixers(source: ConversionSource) -> str | None:
    kept = (_kept(mixer) for mixer in source.attention_map.mixers.values())
    return next((reason for reason in kept if reason is not None), None)


def _tensors(source: ConversionSource) -> str | None:
    if source.architecture.names.split:
        return "its files hold k and v in one tensor, which its class reads as two modules"
    if source.architecture.names.key_value:
        return "something else than a projection stands between its inputs and its keys"
    for one in source.attention_map.attentions.values():
        for held in one.projections:
            if set(held.parts) not in _KNOWN:
                return f"{held.module} holds more than q, k and v"
    return None


CHECKS: tuple[TypeCheck, ...] = (
    *(*STATES, _ours, _nested, _no_class, _other_stacks, _mixers, _tensors),
)
