"""The conversions of a sweep, all planned and none made."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from headcount.convert.plan.planner import plan_conversion
from headcount.convert.plan.request import ConversionRequest
from headcount.convert.plan.source import read_source
from headcount.model.decoder_attentions import attentions
from headcount.model.errors import HeadcountError

from .trial import MOST_TRIALS, SweptLatent, Trial


def trials_of(
    request: ConversionRequest,
    counts: Sequence[int],
    methods: Sequence[str],
    options: Callable[[str], dict[str, Any]],
    latents: Sequence[tuple[SweptLatent, str, dict[str, Any]]] = (),
) -> tuple[Trial, ...]:
    """Every count with every method; `options` are the fields of a request that a method sets.
    `latents` are further trials, each with its method and the fields that this sets.

    A count that the model has already is its own and no trial, unless query heads are pruned; nor
    is one that pruning makes the same as a larger one. Raises HeadcountError for one that it cannot
    have, before anything is converted."""
    spec = read_source(request.source).audit.spec
    has = {mixer.num_key_value_heads for mixer in attentions(spec).values()}
    wanted = [
        (count, method)
        for count in counts
        for method in methods
        if has != {count} or options(method).get("pruned_heads") is not None
    ]
    if not wanted and not latents:
        raise HeadcountError(f"{request.source}: has these K/V heads already: nothing to compare")
    if len(wanted) + len(latents) > MOST_TRIALS:
        raise HeadcountError(
            f"{len(wanted) + len(latents)} conversions; a sweep makes at most {MOST_TRIALS}"
        )
    trials: dict[tuple[int, str], Trial] = {}
    for count, method in wanted:
        plan = plan_conversion(replace(request, num_key_value_heads=count, **options(method)))
        pruned = plan.request.pruned_heads is not None
        made = max(layer.after for layer in plan.layers) if pruned else count
        trials.setdefault((made, method), Trial(num_key_value_heads=made, method=method, plan=plan))
    return (*trials.values(), *(_of_latent(request, *one) for one in latents))


def _of_latent(
    request: ConversionRequest, latent: SweptLatent, method: str, fields: dict[str, Any]
) -> Trial:
    own = {"num_key_value_heads": None, "latent": latent.size, "home": latent.home}
    plan = plan_conversion(replace(request, **{**fields, **own}))
    return Trial(num_key_value_heads=None, method=method, plan=plan, latent=latent)
