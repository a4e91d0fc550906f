"""How large the latents of a conversion are to be, as the user says it."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Literal, NamedTuple

from headcount.model.errors import HeadcountError
from headcount.model.limits import NUMBER_CHARACTERS
from headcount.model.units import parse_bytes

from ..plan.by_layer import parse_by_layer

_SHARE = re.compile(
    r"(?:[01]?\.[0-9]{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?%|[0-9]{1,5}/[0-9]{1,5})", re.ASCII
)
_BYTES = re.compile(r"[0-9.,_ ]+(?:[kmg]i?)?b", re.ASCII | re.IGNORECASE)


class BytesPerToken(NamedTuple):
    """So many bytes that one token takes in the cache, all layers together."""

    nbytes: int


class LayerRanks(NamedTuple):
    """A rank for each layer."""

    by_layer: Mapping[int, int]


# What a budget of bytes leaves to each layer.
ByLayer = Literal["by-layer"]
BY_LAYER: ByLayer = "by-layer"
# A rank for all layers or one for each, a share of what each of them keeps, or bytes a token.
LatentSize = int | Fraction | BytesPerToken | LayerRanks | ByLayer
# What the cache of all layers may take: bytes a token, or a share of what the source keeps.
CacheBudget = Fraction | BytesPerToken


def parse_latent_size(text: str) -> LatentSize:
    """`128`, for single layers `0-3:64,4-7:128`, a share as `1/4`, `0.25` or `25%`, bytes a token
    as `48KiB`, or `by-layer`. Raises HeadcountError."""
    if text == BY_LAYER:
        return BY_LAYER
    if text.isascii() and text.isdecimal() and len(text) <= NUMBER_CHARACTERS.most:
        return int(text)
    if _BYTES.fullmatch(text):
        return BytesPerToken(parse_bytes(text))
    ranks = parse_by_layer(text)
    if ranks is not None:
        return LayerRanks(ranks)
    share = _share(text)
    if share is None:
        raise HeadcountError(
            f"{text!r} is no size of a latent: write elements a token and layer (128), a share of"
            " what a layer keeps (1/4), or bytes a token (48KiB)"
        )
    return share


def parse_cache_budget(text: str) -> CacheBudget:
    """`48KiB` a token, or a share of what the source keeps, as `1/4`. Raises HeadcountError."""
    share = _share(text)
    return BytesPerToken(parse_bytes(text)) if share is None else share


def _share(text: str) -> Fraction | None:
    if not _SHARE.fullmatch(text) or set(text.partition("/")[2]) == {"0"}:
        return None
    number, percent, _ = text.partition("%")
    return Fraction(number) / (100 if percent else 1)


def check_cache_budget(budget: CacheBudget) -> None:
    """Raises HeadcountError for a budget that is none."""
    if isinstance(budget, Fraction):
        if not 0 < budget < 1:
            raise HeadcountError(f"--budget {budget}: a share of the cache is between 0 and 1")
    elif budget.nbytes < 1:
        raise HeadcountError(f"--budget {budget.nbytes}: a token takes at least one byte")


def check_latent_size(size: LatentSize) -> None:
    """Raises HeadcountError for a size that is none."""
    if size == BY_LAYER:
        return
    if isinstance(size, Fraction):
        if not 0 < size <= 1:
            raise HeadcountError(
                f"a latent of {size} of what a layer keeps: a share is above 0, and at most 1"
            )
        return
    least = _least(size)
    if least < 1:
        raise HeadcountError(f"a latent of {least}: at least one element has to be kept")


def _least(size: LatentSize) -> int:
    if isinstance(size, LayerRanks):
        return min(size.by_layer.values(), default=0)
    return size.nbytes if isinstance(size, BytesPerToken) else int(size)


def latent_document(size: LatentSize | None) -> object:
    """JSON-ready, as `latent_from_document` reads it."""
    if isinstance(size, BytesPerToken):
        return {"cache_bytes_per_token": size.nbytes}
    if isinstance(size, LayerRanks):
        return {"by_layer": {str(index): rank for index, rank in size.by_layer.items()}}
    return str(size) if isinstance(size, Fraction) else size


def latent_from_document(document: object) -> LatentSize | None:
    """The size that `latent_document` wrote. Raises ValueError, TypeError or KeyError for anything
    else."""
    if document is None or (isinstance(document, int) and not isinstance(document, bool)):
        return document
    if isinstance(document, str):
        return Fraction(document)
    if isinstance(document, dict) and "by_layer" in document:
        return LayerRanks({int(index): int(rank) for index, rank in document["by_layer"].items()})
    if isinstance(document, dict):
        return BytesPerToken(int(document["cache_bytes_per_token"]))
    raise TypeError(f"{document!r} is no size of a latent")
