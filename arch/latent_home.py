"""Models whose keys and values a modelling file of ours can rebuild from a latent
(`headcount convert --latent`), as far as that follows from a config."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headcount.model.decoder_attentions import attentions, no_key_value_heads, readers_of
from headcount.model.mixers import Attention
from headcount.model.spec import ModelSpec

from .built_classes import type_of_class
from .model_classes import model_classes
from .our_types import is_ours
from .read_config import Reading
from .tensors.names import TensorNames

# Parts of projections that hold nothing but queries, keys and values.
_KNOWN = ({"q"}, {"k"}, {"v"}, {"o"}, {"q", "g"}, {"k", "v"}, {"q", "k", "v"})


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentFacts:
    """What of a model decides. `modules` are its projections, each with the parts that it holds."""

    model_type: str
    is_spelled: bool
    is_nested: bool
    spec: ModelSpec
    mixers: Mapping[tuple[int, bool], Attention]
    names: TensorNames
    modules: Iterable[tuple[str, Iterable[str]]]
    has_more: bool = False


def keeps_latents(model_type: str, reading: Reading) -> bool:
    """Whether a model of `model_type` whose config was read so can keep latents, as far as that
    follows from its config."""
    names, mixers = reading.architecture.names, attentions(reading.spec)
    facts = LatentFacts(
        model_type=model_type,
        is_spelled=True,
        is_nested=reading.view is not reading.text,
        spec=reading.spec,
        mixers=mixers,
        names=names,
        modules=[(path, part) for path, part in names.modules.items() if set("qkv") & set(part)],
    )
    return no_key_value_heads(reading.spec, mixers) is None and latent_misfit(facts) is None


def latent_misfit(facts: LatentFacts) -> str | None:
    """The first reason why keys and values cannot be rebuilt; None: they can."""
    checks = (_ours, _nested, _no_class, _other_stacks, _mixers, _tensors)
    return next((reason for check in checks if (reason := check(facts)) is not None), None)


def _ours(facts: LatentFacts) -> str | None:
    if is_ours(facts.model_type):
        return "a modelling file of ours holds it already: convert the model that it was made from"
    return None


def _nested(facts: LatentFacts) -> str | None:
    if not facts.is_nested:
        return None
    return (
        "nests its language model, whose classes are built by other ones: no latent class is known"
    )


def _no_class(facts: LatentFacts) -> str | None:
    classes = model_classes(facts.model_type)
    if not facts.is_spelled or not classes:
        return "transformers has no class for it that a latent class could extend"
    other = type_of_class(classes.get("AutoModel", ""))
    if other in (None, facts.model_type):
        return None
    return f"transformers runs it with the class of {other}, whose latent class reads other configs"


def _other_stacks(facts: LatentFacts) -> str | None:
    reasons: dict[str, bool] = {
        "has an encoder beside its decoder": any(
            layer.stack != "decoder" for layer in facts.spec.layers
        ),
        "has cross-attention, whose keys are of other tokens": any(w[1] for w in facts.mixers),
        "has layers that read another's keys and values": bool(readers_of(facts.spec)),
        "has attentions without weights of their own": any(
            isinstance(mixer, Attention) and mixer.keeps_key_value and not mixer.owns_parameters
            for layer in facts.spec.layers
            for mixer in layer.mixers
        ),
        "has layers that its config does not count": facts.has_more,
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


def _mixers(facts: LatentFacts) -> str | None:
    kept = (_kept(mixer) for mixer in facts.mixers.values())
    return next((reason for reason in kept if reason is not None), None)


def _tensors(facts: LatentFacts) -> str | None:
    if facts.names.split:
        return "its files hold k and v in one tensor, which its class reads as two modules"
    if facts.names.key_value:
        return "something else than a projection stands between its inputs and its keys"
    held: set[str] = set()
    for module, parts in facts.modules:
        held |= set(parts)
        if set(parts) not in _KNOWN:
            return f"{module} holds more than q, k and v"
    missing = sorted({"q", "k", "v"} - held)
    return f"it is not known which of its tensors hold {', '.join(missing)}" if missing else None
