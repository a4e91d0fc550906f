"""Models whose keys and values cannot be rebuilt from a latent by a modelling file of ours."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headcount.arch.built_classes import type_of_class
from headcount.arch.model_classes import model_classes
from headcount.arch.our_types import is_ours
from headcount.arch.read_config import Reading
from headcount.arch.tensors.names import TensorNames
from headcount.model.mixers import Attention, Recurrent
from headcount.model.spec import ModelSpec

from ..attention_map.attention_tensors import Where
from ..attention_map.mapping import attentions, readers_of
from ..plan.errors import CannotConvertError
from ..plan.refusals.types import STATES, no_key_value_heads, refuse
from ..plan.source import ConversionSource

# Parts of projections that hold nothing but queries, keys and values.
_KNOWN = ({"q"}, {"k"}, {"v"}, {"o"}, {"q", "g"}, {"k", "v"}, {"q", "k", "v"})


@dataclass(frozen=True, kw_only=True, slots=True)
class _Facts:
    """What of a model decides. `modules` are its projections, each with the parts that it holds."""

    model_type: str
    is_spelled: bool
    is_nested: bool
    spec: ModelSpec
    mixers: Mapping[Where, Attention]
    names: TensorNames
    modules: Iterable[tuple[str, Iterable[str]]]
    has_more: bool = False


def check_latent(source: ConversionSource) -> None:
    """Raises CannotConvertError with the first reason why a source is not for latents."""
    refuse(source, STATES)
    found = source.attention_map
    facts = _Facts(
        model_type=source.model_type,
        is_spelled=source.spelled is not None,
        is_nested=source.whole.config.text is not None,
        spec=source.audit.spec,
        mixers=found.mixers,
        names=source.architecture.names,
        modules=[
            (held.module, held.parts)
            for one in found.attentions.values()
            for held in one.projections
        ],
        has_more=bool(found.more),
    )
    reason = _misfit(facts)
    if reason is not None:
        raise CannotConvertError(f"{source.label}: {reason}")


def keeps_latents(model_type: str, reading: Reading) -> bool:
    """Whether a model of `model_type` whose config was read so can keep latents, as far as that
    follows from its config."""
    names, mixers = reading.architecture.names, attentions(reading.spec)
    facts = _Facts(
        model_type=model_type,
        is_spelled=True,
        is_nested=reading.view is not reading.text,
        spec=reading.spec,
        mixers=mixers,
        names=names,
        modules=[(path, part) for path, part in names.modules.items() if set("qkv") & set(part)],
    )
    return no_key_value_heads(reading.spec, mixers) is None and _misfit(facts) is None


def _misfit(facts: _Facts) -> str | None:
    checks = (_ours, _nested, _no_class, _other_stacks, _mixers, _tensors)
    return next((reason for check in checks if (reason := check(facts)) is not None), None)


def _ours(facts: _Facts) -> str | None:
    if is_ours(facts.model_type):
        return "a modelling file of ours holds it already: convert the model that it was made from"
    return None


def _nested(facts: _Facts) -> str | None:
    if not facts.is_nested:
        return None
    return (
        "nests its language model, whose classes are built by other ones: no latent class is known"
    )


def _no_class(facts: _Facts) -> str | None:
    classes = model_classes(facts.model_type)
    if not facts.is_spelled or not classes:
        return "transformers has no class for it that a latent class could extend"
    other = type_of_class(classes.get("AutoModel", ""))
    if other in (None, facts.model_type):
        return None
    return f"transformers runs it with the class of {other}, whose latent class reads other configs"


def _other_stacks(facts: _Facts) -> str | None:
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
        "has attention beside recurrence, which a latent class does not compute alike": any(
            len(layer.mixers) > 1 and any(isinstance(m, Recurrent) for m in layer.mixers)
            for layer in facts.spec.layers
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


def _mixers(facts: _Facts) -> str | None:
    kept = (_kept(mixer) for mixer in facts.mixers.values())
    return next((reason for reason in kept if reason is not None), None)


def _tensors(facts: _Facts) -> str | None:
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
