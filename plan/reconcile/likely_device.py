"""The device of a log that names none: that of the table which its figures fit best."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import inf

from headcount.model.errors import HeadcountError

from ..devices import Device, all_devices
from ..engines.engine import find_engine
from ..plan import plan_model
from ..stored import is_weighed
from .figures import with_logged_terms
from .start import Start

_GIB = 2**30
_LIKELY = 1.0  # GiB that figures may be off a device's budget
_USUAL = "cuda"  # of logs that name no platform


def likely_device(start: Start) -> Device | None:
    """The known device that the figures of the log fit best, where it names none: of those that the
    engine runs on, on the platform that the log names or the usual one before others, whose budget
    would leave what is logged, or that have the memory that was free."""
    devices = list(_runnable(start))
    platform = str(start.log.settings.get("platform", ""))
    usual = [device for device in devices if device.platform == (platform or _USUAL)]
    return _best(start, usual) or (None if platform else _best(start, devices))


def _runnable(start: Start) -> Iterator[Device]:
    engine, version = find_engine(start.request.engine), start.request.version
    for device in all_devices():
        if version is None or engine.not_run_on(device, version) is None:
            yield device


def _best(start: Start, devices: Sequence[Device]) -> Device | None:
    figures = start.log.figures
    if {"left", "weights_gib"} <= figures.keys():
        seen = (figures["left"] + figures["weights_gib"]) * _GIB
        near = [n for n in devices if 0.995 <= n.usable_memory / seen <= 1.04]
        return min(near, key=lambda device: device.usable_memory, default=None)
    if "available_gib" not in figures or not is_weighed(start.model):
        return None
    found = ((_off(start, device), device) for device in devices)
    off, best = min(found, key=lambda pair: pair[0], default=(inf, None))
    return best if off <= _LIKELY else None


def _off(start: Start, device: Device) -> float:
    """GiB that the budget of the device and the log are apart."""
    request = replace(start.request, device=device, kv_memory=None)
    try:
        plan = plan_model(start.model, request)
    except HeadcountError:
        return inf
    left, _, _ = with_logged_terms(start, plan)
    return abs(left / _GIB - start.log.figures["available_gib"])
