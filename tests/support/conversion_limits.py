"""What the architectures say of conversions, by model_type: for tests that go through all types."""

from headcount.arch.registry import ARCHITECTURES

_LIMITS = {model_type: found.conversion for model_type, found in ARCHITECTURES.items()}
REFUSED = {t: limits.refused for t, limits in _LIMITS.items() if limits.refused is not None}
UNCOMPARED = {t: limits.uncompared for t, limits in _LIMITS.items() if limits.uncompared}
BY_LAYER = frozenset(t for t, limits in _LIMITS.items() if limits.by_layer)
WIDTH_CHECKED = frozenset(t for t, limits in _LIMITS.items() if limits.width_checked)
