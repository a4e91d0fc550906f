"""What models of remote code hold beside the common shape: the callables of body_rows.remote."""

from typing import Any

from headcount.model.errors import InvalidConfigError
from headcount.model.spec import Layer

from ..config_view import ConfigView


def openelm_width(view: ConfigView, layer: Layer) -> int:
    """A multiple of the hidden size for each layer, rounded to the nearest multiple of a divisor,
    and up where that loses more than a tenth (arXiv 2404.14619 and its `make_divisible`)."""
    multiples: Any = view.get("ffn_multipliers")
    if not isinstance(multiples, list):
        multiples = [multiples] * (layer.index + 1)
    factor = multiples[layer.index] if layer.index < len(multiples) else None
    if not isinstance(factor, (int, float)) or isinstance(factor, bool) or not 0 < factor < 1000:
        raise InvalidConfigError(
            f"{view.where}: ffn_multipliers has no valid entry for layer {layer.index}"
        )
    divisor = view.optional("ffn_dim_divisor") or 256
    exact = factor * view.integer("hidden_size")
    width = max(divisor, int(exact + divisor / 2) // divisor * divisor)
    return width + (divisor if width < 0.9 * exact else 0)
