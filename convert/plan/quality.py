"""How a quality becomes the rungs of the ladder that it stands for."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from ..merge.ladder import LATENT_QUALITIES, QUALITIES, Ladder, Quality

# The options that a quality bundles.
LADDER = tuple(field.name for field in fields(Ladder) if field.name != "seed")


def with_quality(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the rungs of `quality`, which is none of a request's fields, in place of
    those that are None. Choosing a head has no further rungs, and takes none."""
    given = {name: value for name, value in options.items() if name not in ("quality", *LADDER)}
    explicit = {name: options[name] for name in LADDER if options.get(name) is not None}
    quality: Quality | None = options.get("quality")
    bundles = QUALITIES if options.get("latent") is None else LATENT_QUALITIES
    bundle = asdict(Ladder() if quality is None else bundles[quality])
    return {**given, **{name: bundle[name] for name in LADDER}, **explicit}
