"""What mixes tokens in a layer: its parameters, and the state that it keeps for decoding.

A mixer holds geometry only. Tokens, batch, element size and engine are arguments. Counts are
elements, for a batch of one. The mixers of few models are imported when one is asked for.
"""

from typing import TYPE_CHECKING, Any

from .attention import Attention, CrossAttention
from .latent import LatentAttention
from .state import Keeper, Parts, State, fills

if TYPE_CHECKING:
    from .compressed import CompressedAttention
    from .low_rank import LowRankAttention
    from .recurrent import Recurrent

    Mixer = Attention | CrossAttention | LatentAttention | CompressedAttention | Recurrent
else:
    Mixer = Attention | CrossAttention | LatentAttention  # for annotations only

__all__ = [
    "Attention",
    "CompressedAttention",
    "CrossAttention",
    "Keeper",
    "LatentAttention",
    "LowRankAttention",
    "Mixer",
    "Parts",
    "Recurrent",
    "State",
    "fills",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    rooms = {
        "CompressedAttention": ".compressed",
        "LowRankAttention": ".low_rank",
        "Recurrent": ".recurrent",
    }
    if name not in rooms:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(rooms[name], __name__), name)
