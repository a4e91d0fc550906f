"""The device of a log that names none: that of the table which its figures fit best."""

from dataclasses import replace
from math import inf

from headcount.model.errors import HeadcountError

from ..devices import Device, all_devices
from ..plan import plan_model
from ..stored import is_weighed
from .figures import with_logged_terms
from .start import Start

_GIB = 2**30
_LIKELY = 1.0  # GiB that figures may be off a device's budget


def likely_device(start: Start) -> Device | None:
    """The known device that the figures of the log fit best, where it names none: of those whose
    budget would leave what is logged, or that have the memory that was free."""
    figures = start.log.figures
    if {"left", "weights_gib"} <= figures.keys():
        seen = (figures["left"] + figures["weights_gib"]) * _GIB
        near = [n for n in all_devices() if 0.995 <= n.usable_memory / seen <= 1.04]
        return min(near, key=lambda device: device.usable_memory, default=None)
    if "available_gib" not in figures or not is_weighed(start.model):
        return None
    found = [(_off(start, device), device) for device in all_devices()]
    off, device = min(found, key=lambda pair: pair[0])
    return device if off <= _LIKELY else None


def _off(start: Start, device: Device) -> float:
    """GiB that the budget of the device and the log are apart."""
    request = replace(start.request, device=device, kv_memory=None)
    try:
        plan = plan_model(start.model, request)
    except HeadcountError:
        return inf
    left, _, _ = with_logged_terms(start, plan)
    return abs(left / _GIB - start.log.figures["available_gib"])
