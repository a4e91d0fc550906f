"""What mixes tokens in a layer: its parameters, and the state that it keeps for decoding.

A mixer holds geometry only. Tokens, batch, element size and engine are arguments. Counts are
elements, for a batch of one.
"""

from .attention import Attention, CrossAttention
from .compressed import CompressedAttention
from .latent import LatentAttention
from .recurrent import Recurrent
from .state import Engine, Parts, State

Mixer = Attention | CrossAttention | LatentAttention | CompressedAttention | Recurrent

__all__ = [
    "Attention",
    "CompressedAttention",
    "CrossAttention",
    "Engine",
    "LatentAttention",
    "Mixer",
    "Parts",
    "Recurrent",
    "State",
]
