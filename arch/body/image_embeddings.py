"""What turns an image into the inputs of an encoder: patches, special tokens, positions."""

from ..config_view import ConfigView
from .body import Layers


def convolution(view: ConfigView, *, inputs: int, positions: int, bias: bool = True) -> int:
    """A convolution of `inputs` channels to the hidden size, over `positions` positions."""
    return view.integer("hidden_size") * (inputs * positions + bias)


def sides(view: ConfigView, name: str) -> tuple[int, int]:
    """Height and width, where the config gives one side or both."""
    if not isinstance(view.get(name), list):
        return (view.integer(name),) * 2
    height, width = view.integers(name, count=2, minimum=1) or (0, 0)
    return height, width


def area(view: ConfigView, name: str) -> int:
    height, width = sides(view, name)
    return height * width


def patches(view: ConfigView, *, bias: bool, channels: str = "num_channels") -> int:
    """The convolution that turns an image into patch embeddings."""
    inputs = view.integer(channels)
    return convolution(view, inputs=inputs, positions=area(view, "patch_size"), bias=bias)


def patch_count(view: ConfigView) -> int:
    """Patches of an image whose sides, as those of a patch, are given once or both."""
    (height, width), (rows, columns) = sides(view, "image_size"), sides(view, "patch_size")
    return (height // rows) * (width // columns)


def vit_embeddings(view: ConfigView, layers: Layers) -> int:
    """Patches, the class token, and positions of all of them."""
    return patches(view, bias=True) + (patch_count(view) + 2) * view.integer("hidden_size")


def clip_embeddings(view: ConfigView, layers: Layers) -> int:
    """The same without a bias of the convolution."""
    return vit_embeddings(view, layers) - view.integer("hidden_size")


def vit_patches(view: ConfigView, tokens: int) -> int:
    """Patches, `tokens` learned tokens and a position for each of either."""
    hidden = view.integer("hidden_size")
    rows = 2 * tokens + patch_count(view)
    return patches(view, bias=True) + rows * hidden
