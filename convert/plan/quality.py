"""How a quality becomes the rungs of the ladder that it stands for."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from headcount.model.errors import HeadcountError

from ..merge.ladder import LATENT_QUALITIES, QUALITIES, Ladder, Quality
from .request import needs_text

# The options that a quality bundles.
LADDER = tuple(field.name for field in fields(Ladder) if field.name != "seed")
_SAYING_HOW = ("calibration_tokens", "calibration_row_tokens")  # refused by their own names
_OF_TEXT, _PLAIN = ("refit", "reconstruct", "temperature"), asdict(Ladder())


def with_quality(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the rungs of `quality`, which is none of a request's fields, in place of
    those that are None. Choosing a head has no further rungs, and takes none. Raises HeadcountError
    where it reads text and there is none."""
    given = {name: value for name, value in options.items() if name not in ("quality", *LADDER)}
    explicit = {name: options[name] for name in LADDER if options.get(name) is not None}
    quality: Quality | None = options.get("quality")
    bundles = QUALITIES if options.get("latent") is None else LATENT_QUALITIES
    bundle = asdict(Ladder() if quality is None else bundles[quality])
    reads = [name for name in _OF_TEXT if bundle[name] != _PLAIN[name] and name not in explicit]
    told = any(options.get(name) is not None for name in _SAYING_HOW)
    if reads and options.get("calibration") is None and not told:
        raise HeadcountError(needs_text(f"--quality {quality}"))
    return {**given, **{name: bundle[name] for name in LADDER}, **explicit}
