"""What a request may bring beside text: how many images, videos and sounds, and how large."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from headcount.model import limits
from headcount.model.errors import HeadcountError, short

MODALITIES = ("image", "video", "audio")


class MostItems(NamedTuple):
    """Of each modality the most that a prompt may have; None: as many as the engine takes. `given`
    is how the user said it."""

    image: int | None = None
    video: int | None = None
    audio: int | None = None
    given: str = ""


class ImageSize(NamedTuple):
    """The most pixels of an image, and how the user said it."""

    max_pixels: int
    given: str


def parse_limits(text: str) -> MostItems:
    """vLLM's --limit-mm-per-prompt, as in {"image": 2, "video": 0}. Raises HeadcountError."""
    values = _object("--limit-mm-per-prompt", text)
    return MostItems(**dict(_counts(values)), given=json.dumps(values))


def _counts(values: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    for name, value in values.items():
        count = value.get("count") if isinstance(value, dict) else value
        if name not in MODALITIES or type(count) is not int or not 0 <= count <= limits.NUMBER.most:
            raise HeadcountError(
                f"--limit-mm-per-prompt: {short(name)}: {short(value)}; a number of"
                f" {', '.join(MODALITIES)} is meant"
            )
        yield name, count


def parse_image_size(text: str) -> ImageSize:
    """vLLM's --mm-processor-kwargs with `max_pixels`, or `size` with `longest_edge`, which is a
    number of pixels, too, in processors of Qwen's. Raises HeadcountError."""
    values = _object("--mm-processor-kwargs", text)
    size = values.get("size")
    edge = size.get("longest_edge") if isinstance(size, dict) else None
    pixels = values.get("max_pixels", edge)
    if type(pixels) is not int or not 1 <= pixels <= limits.NUMBER.most:
        raise HeadcountError(
            f"--mm-processor-kwargs {short(text)}: what it does to the size of images is not known;"
            ' {"max_pixels": N} is'
        )
    return ImageSize(max_pixels=pixels, given=json.dumps(values))


def _object(name: str, text: str) -> Mapping[str, Any]:
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise HeadcountError(f"{name} is no JSON: {short(text)}") from error
    if not isinstance(values, dict):
        raise HeadcountError(f"{name} is {short(values)}; an object in JSON is meant")
    return values
