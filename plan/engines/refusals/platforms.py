"""Which devices an engine runs on, by what programs are built for."""

from collections.abc import Mapping

from ...devices import Device

# platform -> what it must have: CUDA's capability at least, or one of ROCm's architectures; None:
# all devices of it.
Platforms = Mapping[str, str | tuple[str, ...] | None]


def has_capability(device: Device, least: str) -> bool:
    """Whether it is a CUDA device of at least that compute capability."""
    return device.platform == "cuda" and _number(device.capability) >= _number(least)


def _number(capability: str | None) -> tuple[int, ...]:
    return tuple(int(part) for part in (capability or "0").split("."))


def not_run_on(device: Device, platforms: Platforms) -> str | None:
    """Why no engine of these platforms runs on the device, said of the engine; None where one does,
    and for a device of which only a size is known."""
    if not device.platform:
        return None
    if device.platform not in platforms:
        return f"does not run on {device.key} ({device.platform})"
    wanted = platforms[device.platform]
    if isinstance(wanted, str) and not has_capability(device, wanted):
        return f"needs compute capability {wanted}, {device.key} has {device.capability}"
    if isinstance(wanted, tuple) and device.capability not in wanted:
        return f"runs on {', '.join(wanted)}, {device.key} is {device.capability}"
    return None
