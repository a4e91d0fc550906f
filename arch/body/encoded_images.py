"""How many tokens an encoder makes of one image: what a cross-attention sees of it."""

from collections.abc import Callable
from dataclasses import dataclass

from ..config_view import ConfigView
from .image_embeddings import patch_count, sides


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodedImage:
    """`tokens` by the config of the encoder, or of the model around it where that decides.
    `formula` says the same in the words of its keys."""

    tokens: Callable[[ConfigView], int]
    formula: str


def patches_and(special: int, key: str | None = None) -> EncodedImage:
    """A token for each patch, so many special ones, and as many as `key` says."""

    def tokens(view: ConfigView) -> int:
        more = view.optional(key, minimum=0) if key else None
        return patch_count(view) + special + (more or 0)

    words = ("(image_size / patch_size)^2", str(special or ""), key or "")
    return EncodedImage(tokens=tokens, formula=" + ".join(filter(None, words)))


def of_tower(image: EncodedImage) -> EncodedImage:
    """The same of the tower in `vision_config`."""
    return EncodedImage(
        tokens=lambda view: image.tokens(view.child("vision_config")), formula=image.formula
    )


def _tiles(view: ConfigView) -> int:
    return (view.optional("max_num_tiles") or 1) * (patch_count(view) + 1)


def _halved_twice(view: ConfigView) -> int:
    edges = zip(sides(view, "image_size"), sides(view, "patch_size"), strict=True)
    height, width = (-(-(size // patch) // 4) for size, patch in edges)
    return height * width


# The tower's output for all tiles of one image (Llama 3.2 Vision)
TILES = of_tower(EncodedImage(tokens=_tiles, formula="tiles * ((image_size / patch_size)^2 + 1)"))
# Two convolutions of stride 2 behind the tower (PP-FormulaNet)
HALVED_TWICE = of_tower(
    EncodedImage(tokens=_halved_twice, formula="(image_size / patch_size / 4)^2, rounded up")
)
