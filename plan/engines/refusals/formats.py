"""Formats of weights that a CUDA device has no kernels for, by what each asks of it."""

from collections.abc import Mapping

from headcount.arch.formats.of_configs import scheme_of
from headcount.model.errors import HeadcountError

from ...devices import Device
from ...planned_model import PlannedModel
from ..version import Version
from .platforms import has_capability

# Since a version, the newest first: the least compute capability of a format.
Since = tuple[tuple[tuple[int, ...], str], ...]


def format_of(model: PlannedModel) -> str | None:
    """The name that the config has for its quantisation, of ModelOpt with the algorithm; None where
    there is none, or none that is understood."""
    try:
        scheme = scheme_of(model.config)
    except HeadcountError:
        return None
    if scheme is None:
        return None
    if scheme.name.startswith("modelopt"):
        settings = model.config.get("quantization_config") or {}
        algorithm = str(settings.get("quant_algo") or "").lower()
        return f"modelopt, {algorithm}"
    return scheme.name


def lacks_kernels(
    name: str | None, device: Device, version: Version, least: Mapping[str, Since]
) -> str | None:
    """Why the format `name` does not run on a CUDA device, by the `least` that each asks for; None
    where it does."""
    since = least.get(name or "", ())
    wanted = next((capability for at, capability in since if version.at_least(*at)), None)
    if name is None or wanted is None or has_capability(device, wanted):
        return None
    return needs(name, wanted, device)


def needs(what: str, least: str, device: Device) -> str:
    return f"{what} needs compute capability {least}, {device.key} has {device.capability}"
