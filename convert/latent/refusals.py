"""Models whose keys and values cannot be rebuilt from a latent by a modelling file of ours."""

from headcount.arch.latent_home import LatentFacts, latent_misfit

from ..plan.errors import CannotConvertError
from ..plan.refusals.types import STATES, refuse
from ..plan.source import ConversionSource


def check_latent(source: ConversionSource) -> None:
    """Raises CannotConvertError with the first reason why a source is not for latents."""
    refuse(source, STATES)
    found = source.attention_map
    facts = LatentFacts(
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
    reason = latent_misfit(facts)
    if reason is not None:
        raise CannotConvertError(f"{source.label}: {reason}")
