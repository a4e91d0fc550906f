"""Whether vLLM keeps windows as windows where other layers keep every token.

Its hybrid K/V cache manager does. Without it, layers with a window are given as much as full ones
(unify_hybrid_kv_cache_specs in vllm/v1/core/kv_cache_utils.py).
"""

from collections.abc import Sequence
from dataclasses import replace

from ..layers import LayerCache
from ..version import Version

_SINCE = (0, 9, 1)  # vllm-project/vllm#17996
_CHUNKED_SINCE = (0, 9, 2)  # vllm-project/vllm#19351
_CHUNKED_OFF, _CHUNKED_AGAIN = (0, 10, 1), (0, 14)  # vllm-project/vllm#21761 and #29627


def as_allocated(
    layers: Sequence[LayerCache], version: Version, *, disabled: bool = False
) -> tuple[LayerCache, ...]:
    """The layers as vLLM allocates them: with `disabled`, or in a version that has no manager for
    them, those with a window are full wherever another layer is. A model of windows alone keeps
    them."""
    windows = {n.kind for n in layers if n.kind in ("sliding", "chunked")}
    has_full = any(layer.kind in ("full", "latent") for layer in layers)
    if not windows or not has_full:
        return tuple(layers)
    if not disabled and all(_is_managed(kind, version) for kind in windows):
        return tuple(layers)
    return tuple(replace(n, kind="full", window=None) if n.kind in windows else n for n in layers)


def _is_managed(kind: str, version: Version) -> bool:
    if kind == "sliding":
        return version.at_least(*_SINCE)
    off = version.at_least(*_CHUNKED_OFF) and not version.at_least(*_CHUNKED_AGAIN)
    return version.at_least(*_CHUNKED_SINCE) and not off
