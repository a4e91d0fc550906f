"""Options of `convert` that do not go together: none is left out without a word."""

from collections.abc import Iterable
from dataclasses import fields

import click

from headcount.evaluate.evaluation_request import EvaluationRequest

from .convert_options import SWEEP

_NO_OPTION = ("model", "against", "dtype", "repeats")
_EVALUATION = tuple(
    field.name for field in fields(EvaluationRequest) if field.name not in _NO_OPTION
)
# What a sweep decides, or does, itself.
_OF_ONE = (
    "num_key_value_heads",
    "latent",
    "cache_budget",
    "dry_run",
    "checks",
    "evaluates",
    "overwrite",
    "speed",
    "behaviour",
    "roles",
)
# What transformers does with a folder.
_NOT_OF_GGUF = ("checks", "evaluates", "counts", "max_shard_size", "families", "verified")
_WITH_FAMILIES = ("families", "formats", "output")
_WITH_VERIFY = (
    "verified",
    "sample",
    "seed",
    "source",
    "allow_pickle",
    "merge_adapter",
    "formats",
    "output",
)


def check_together(context: click.Context) -> None:
    """Raises UsageError for options on the command line that others make useless."""
    given = [name for name in context.params if _is_given(context, name)]
    if context.params["formats"][0] == "gguf":
        why = "does not go with --format gguf: convert without it first, and then the result to it"
        _refuse(context, given, _NOT_OF_GGUF, why)
    if "families" in given:
        _refuse(context, given, set(given) - {*_WITH_FAMILIES}, "does not go with --families")
        return
    if "verified" in given:
        why = "does not go with --verify, which writes nothing: leave it out"
        _refuse(context, given, set(given) - {*_WITH_VERIFY}, why)
        return
    _refuse(context, given, ("sample",), "is for --verify OUT: add that, or leave it out")
    if "counts" not in given:
        _refuse(context, given, SWEEP, "is for --sweep 8,4,2,1: add that, or leave it out")
        if "evaluates" not in given:
            _refuse(context, given, _EVALUATION, "is for --evaluate or --sweep: add one of them")
        return
    _refuse(context, given, _OF_ONE, "does not go with --sweep, which converts and evaluates all")


def _is_given(context: click.Context, name: str) -> bool:
    """Without --no-speed and --no-roles, which take nothing away that a sweep would do."""
    source = context.get_parameter_source(name)
    left_out = name in ("speed", "roles") and context.params[name] is False
    return source is click.core.ParameterSource.COMMANDLINE and not left_out


def _refuse(context: click.Context, given: Iterable[str], names: Iterable[str], why: str) -> None:
    """Raises UsageError if one of `names` is among the `given`."""
    wrong = {name for name in given if name in set(names)}
    for parameter in context.command.params:
        if parameter.name in wrong:
            is_option = isinstance(parameter, click.Option)
            name = parameter.opts[0] if is_option else parameter.human_readable_name
            raise click.UsageError(f"{name} {why}", ctx=context)
