"""How large the latents of a conversion are to be, as the user says it."""

import re
from fractions import Fraction
from typing import NamedTuple

from headcount.model.errors import HeadcountError
from headcount.model.units import parse_bytes

_SHARE = re.compile(
    r"(?:[01]?\.[0-9]{1,9}|[0-9]{1,3}(?:\.[0-9]{1,9})?%|[0-9]{1,5}/[0-9]{1,5})", re.ASCII
)
_BYTES = re.compile(r"[0-9.,_ ]+(?:[kmg]i?)?b", re.ASCII | re.IGNORECASE)


class BytesPerToken(NamedTuple):
    """So many bytes that one token takes in the cache, all layers together."""

    nbytes: int


# A rank for all layers, a share of what each of them keeps, or bytes a token.
LatentSize = int | Fraction | BytesPerToken


def parse_latent_size(text: str) -> LatentSize:
    """`128`, a share as `1/4`, `0.25` or `25%`, or bytes a token as `48KiB`. Raises
    HeadcountError."""
    if text.isascii() and text.isdecimal() and len(text) <= 6:
        return int(text)
    if _BYTES.fullmatch(text):
        return BytesPerToken(parse_bytes(text))
    if not _SHARE.fullmatch(text) or set(text.partition("/")[2]) == {"0"}:
        raise HeadcountError(
            f"{text!r} is no size of a latent: write elements a token and layer (128), a share of"
            " what a layer keeps (1/4), or bytes a token (48KiB)"
        )
    number, percent, _ = text.partition("%")
    return Fraction(number) / (100 if percent else 1)


def check_latent_size(size: LatentSize) -> None:
    """Raises HeadcountError for a size that is none."""
    if isinstance(size, Fraction) and not 0 < size <= 1:
        raise HeadcountError(f"a latent of {size} of what a layer keeps: a share is from 0 to 1")
    least = size.nbytes if isinstance(size, BytesPerToken) else size
    if least <= 0 or (not isinstance(size, Fraction) and least < 1):
        raise HeadcountError(f"a latent of {least}: at least one element has to be kept")


def latent_document(size: LatentSize | None) -> object:
    """JSON-ready, as `latent_from_document` reads it."""
    if isinstance(size, BytesPerToken):
        return {"bytes_per_token": size.nbytes}
    return str(size) if isinstance(size, Fraction) else size


def latent_from_document(document: object) -> LatentSize | None:
    """The size that `latent_document` wrote. Raises ValueError, TypeError or KeyError for anything
    else."""
    if document is None or (isinstance(document, int) and not isinstance(document, bool)):
        return document
    if isinstance(document, str):
        return Fraction(document)
    if isinstance(document, dict):
        return BytesPerToken(int(document["bytes_per_token"]))
    raise TypeError(f"{document!r} is no size of a latent")
