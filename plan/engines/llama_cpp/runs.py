"""Layers that run several times: llama.cpp counts each run as a layer, with a cache of its own.

HRM-Text's files have a low and a high stack: the low one runs some times, then the high one once,
and that again (src/models/hrm-text.cpp).
"""

from headcount.model.spec import ModelSpec

_CYCLES = ("hrm.h_cycles", "hrm.l_cycles", "hrm.layers_per_stack")


def runs_of(spec: ModelSpec) -> tuple[int, ...]:
    """Of each layer that llama.cpp counts the number of the one whose weights it has."""
    said = [spec.origins[key].value for key in _CYCLES if key in spec.origins]
    if len(said) < len(_CYCLES):
        return tuple(range(max(layer.index for layer in spec.layers) + 1))
    high, low, depth = (one for one in said if isinstance(one, int))
    return tuple(first + i for first in (*[0] * low, depth) * high for i in range(depth))
