"""The accelerators that plans know: memory, bandwidth and arithmetic, each with its source.

`devices.json` holds the table and its units; docs/devices.md says where the figures come from.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headcount.model.errors import HeadcountError
from headcount.model.units import format_bytes, parse_bytes

_TABLE = Path(__file__).with_name("devices.json")
# Words that `torch.cuda.get_device_name` and shops put before the model's own name.
_BRANDS = frozenset(("amd", "apple", "aws", "geforce", "google", "instinct", "intel", "radeon"))
# A name can hold digits too (`4090`, `4060 Ti 16GB`), so a size must be one number and its unit.
_SIZE = re.compile(r"([\d.,_]+)\s*(?:[kmgt]i?b?|b)", re.ASCII | re.IGNORECASE)
# A count before or behind a name; behind it, it is no part of a name such as rtx5080.
_COUNTED = re.compile(r"(\d{1,3})\s*[x*]\s*(\S.*)|(\S.*?)\s*[x*]\s*(\d{1,3})", re.IGNORECASE)
_NUMBER = re.compile(r"\d{1,4}", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Device:
    """One accelerator as a framework sees it, alone on it.

    `memory` is the nominal size and `usable_memory` what is visible as total memory, both in
    bytes; `usable_source` says where that was seen, or begins with `estimated:`. `bandwidth` is
    bytes per second of device memory. `flops` are dense BF16 or FP16 FLOP/s without sparsity. The
    last two are data-sheet peaks, found in `source`, and None where none is published. `platform`
    is what programs are built for (cuda, rocm, xpu, hpu, tpu, neuron, metal), empty where only a
    size is known; `capability` is CUDA's, or the name that ROCm has for the architecture. As many
    as `per_card` make up the card, or chip, that is bought or rented.
    """

    key: str
    name: str
    vendor: str
    memory: int
    usable_memory: int
    usable_source: str
    bandwidth: int | None
    flops: int | None
    source: str
    aliases: tuple[str, ...] = ()
    platform: str = ""
    capability: str | None = None
    per_card: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.usable_memory <= self.memory:
            raise ValueError(f"{self.key}: usable_memory must be in 1..memory")


@lru_cache(maxsize=1)
def all_devices() -> tuple[Device, ...]:
    """Every device of the table, in its order: by vendor, then by nominal memory."""
    rows = json.loads(_TABLE.read_text(encoding="utf-8"))["devices"]
    return tuple(Device(**{**row, "aliases": tuple(row["aliases"])}) for row in rows)


def find_device(name: str) -> Device:
    """The device of that key, alias or full name; case, blanks, dashes and brands do not count.

    Raises HeadcountError, with the nearest keys, for a name that is not in the table.
    """
    device = _index().get(_normalise(name))
    if device is None:
        raise HeadcountError(_unknown(name))
    return device


def parse_device(text: str) -> Device:
    """A size such as `80GiB` or `24GB` gives a device with just that usable memory; else a name.

    Raises HeadcountError for an unknown name or an impossible size.
    """
    if not _SIZE.fullmatch(text.strip()):
        return find_device(text)
    size = parse_bytes(text)
    return Device(
        key=text.strip(),
        name=f"device with {format_bytes(size)}",
        vendor="",
        memory=size,
        usable_memory=size,
        usable_source="the size asked for",
        bandwidth=None,
        flops=None,
        source="the size asked for",
    )


def parse_devices(text: str) -> tuple[Device, ...]:
    """Several names or sizes with commas, each once. Raises HeadcountError."""
    names = [text] if _SIZE.fullmatch(text.strip()) else text.split(",")
    for name in names:
        if counted := with_count(name):
            raise HeadcountError(
                f"{name.strip()!r} among several devices: how many share a model is one number for"
                f" all of them, --device {counted[0]},... --tp {counted[1]}"
            )
    found = {device.key: device for device in map(parse_device, names)}
    return tuple(found.values())


def sold_as(device: Device) -> tuple[Device, ...]:
    """Of a device that is a size alone, those whose makers name that number of gigabytes: they have
    2^30 bytes of each, less what hardware and driver keep."""
    match = _SIZE.fullmatch(device.key)
    if match is None or device.memory < 10**9:
        return ()
    number = match[1].replace(",", "").replace("_", "")
    return tuple(one for one in all_devices() if number == f"{one.memory / 2**30:g}")


def with_count(text: str) -> tuple[str, int] | None:
    """The device and how many of it, of `4xh100`, `4 x h100` or `h100x4`; None for what is no count
    of a known device, or itself the name of one."""
    if _normalise(text) in _index():
        return None
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        return None
    name, count = (match[2], match[1]) if match[1] else (match[3], match[4])
    is_known = _SIZE.fullmatch(name) or _normalise(name) in _index()
    return (name, int(count)) if is_known and int(count) else None


@lru_cache(maxsize=1)
def _index() -> dict[str, Device]:
    return {
        _normalise(name): device
        for device in all_devices()
        for name in (device.key, device.name, *device.aliases)
    }


def _normalise(name: str) -> str:
    words = re.findall(r"[a-z0-9]+", re.sub("nvidia|tesla", " ", name.lower()))
    return "".join(word for word in words if word not in _BRANDS)


def _unknown(name: str) -> str:
    if _NUMBER.fullmatch(name.strip()):
        size = name.strip()
        return (
            f"no device is named {name!r}: is {size}GiB meant (2^30 bytes each), or {size}GB"
            " (10^9)?\n`headcount devices` lists what can be named"
        )
    near = _nearest(name)
    offer = f"; nearest: {', '.join(near)}" if near else ""
    return (
        f"no device is named {name!r}{offer}\n"
        "`headcount devices` lists all of them; a size such as 80GiB works too"
    )


def _nearest(name: str) -> tuple[str, ...]:
    from difflib import get_close_matches  # slow to import, and only errors want it

    wanted = _normalise(name)
    begun = [known for known in _index() if wanted and known.startswith(wanted)]
    close = get_close_matches(wanted, _index(), n=8, cutoff=0.6)
    keys = (_index()[known].key for known in (*begun, *close))
    return tuple(dict.fromkeys(keys))[:4]
