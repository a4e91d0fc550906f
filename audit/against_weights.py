"""A spec held against its headers: what they correct, what they count, and what is wrong."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .audited import Audit, counted
from .census import Census, count_parts, take_census
from .family.resolve import Reading
from .mixers import Parts
from .observe import correct
from .rules import Facts, check
from .source.checkpoint import Checkpoint
from .source.found import Source
from .spec import MixerKey, ModelSpec


def hold_against_weights(source: Source, reading: Reading, checkpoint: Checkpoint) -> Audit:
    """The audit of a config, as it was read, on the headers of `checkpoint`."""
    spec, family = reading.spec, reading.family
    census = take_census(checkpoint, family, spec)
    corrected, observed = correct(spec, census, family)
    facts = Facts(
        spec=spec,
        family=family,
        where=source.where,
        checkpoint=checkpoint,
        census=census,
        observed=observed,
        has_head=_has_head(source.config or {}, spec),
    )
    if checkpoint.missing or checkpoint.partial or census.packed:
        counts = counted(reading, source)
        total, origin = counts.parameters, counts.parameters_source
    else:
        total, origin = census.parameters, "headers"
    return Audit(
        source=source,
        spec=replace(corrected, parameters=total, parameters_source=origin),
        family=family,
        census=census,
        stored={} if census.packed else stored_parts(census, corrected),
        findings=check(facts),
    )


def stored_parts(census: Census, spec: ModelSpec) -> dict[MixerKey, Parts]:
    """The attention parameters that the headers hold, per mixer."""
    return {
        key: count_parts(census.layers[key], mixer)
        for layer in spec.layers
        for key, mixer in layer.keyed_mixers()
        if key in census.layers
    }


def _has_head(config: Mapping[str, Any], spec: ModelSpec) -> bool:
    """Whether the saved class computes logits: `GPT2Model` does not, `GPT2LMHeadModel` does."""
    names = config.get("architectures")
    name = names[0] if isinstance(names, list) and names and isinstance(names[0], str) else ""
    bare = name.endswith("Model") and not name.endswith("LMHeadModel")
    return spec.is_cached and not bare
