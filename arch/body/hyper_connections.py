"""Several copies of the hidden state that each half of a layer reads from and writes to."""

from collections.abc import Callable

from ..config_view import ConfigView
from .body import Layers

BodyCount = Callable[[ConfigView, Layers], int]


def hyper_connections(*, mixing: bool, head: bool) -> BodyCount:
    """Hyper-connections (arXiv 2409.19606) of `hc_mult` copies of the hidden state, before both
    halves of a layer, and where `head` says so one that joins the copies at the end. With `mixing`
    they also mix the copies among each other."""

    def connections(view: ConfigView, layers: Layers) -> int:
        n, hidden = view.integer("hc_mult"), view.integer("hidden_size")
        outputs, scales = (n * n + 2 * n, 3) if mixing else (2 * n, 2)
        each = outputs * (n * hidden + 1) + scales
        last = n * (n * hidden + 1) + 1 if head else 0
        return 2 * len(layers) * each + last

    return connections
