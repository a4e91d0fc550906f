"""Where a model that runs as a whole lies: on one device, or spread over all that there are."""

from dataclasses import dataclass
from importlib.util import find_spec

import torch
from transformers import PreTrainedModel

from headcount.model.errors import HeadcountError, MissingExtraError

from .launched import is_launched

AUTO = "auto"


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """`inputs` is the device that a model's inputs go to and its logits come back to. `spread`: its
    layers lie on all devices, as transformers' `device_map="auto"` finds room for them: first the
    GPUs, then main memory, then the disk."""

    inputs: torch.device
    spread: bool = False

    def __str__(self) -> str:
        return AUTO if self.spread else str(self.inputs)


def resolve_placement(name: str | None) -> Placement:
    """`cpu`, `cuda`, `cuda:1`…, or `auto`: all GPUs, or the CPU where there is none. For None,
    `cuda` where there is one. Raises HeadcountError."""
    if name != AUTO:
        return Placement(inputs=resolve_device(name))
    if is_launched():
        raise HeadcountError(
            "--torch-device auto: takes all devices, and each process of a launcher has its own:"
            " start it without the launcher, or use cuda or cpu"
        )
    if find_spec("accelerate") is None:
        raise MissingExtraError(
            "--torch-device auto needs accelerate: install the extra `uptrain`, in a clone of"
            " headcount with: pip install '.[uptrain]'"
        )
    first = resolve_device(None)
    return Placement(inputs=first, spread=first.type != "cpu")


def resolve_device(name: str | None, option: str = "--torch-device") -> torch.device:
    """`cpu` or `cuda`; for None, `cuda` where there is one. Raises HeadcountError, which names the
    `option` that it was given by."""
    has_cuda = torch.cuda.is_available()
    if name is None:
        return torch.device("cuda" if has_cuda else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise HeadcountError(f"{option} {name!r} is no device: use cpu or cuda") from error
    if device.type not in ("cpu", "cuda"):
        raise HeadcountError(f"{option} {name!r}: models are run on cpu or cuda")
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise HeadcountError(f"{option} {name!r}: torch finds no such GPU; use {option} cpu")
    return device


def inputs_device(model: PreTrainedModel) -> torch.device:
    """Where the inputs of a loaded model go: its weights lie nowhere while they are offloaded."""
    hook = getattr(model, "_hf_hook", None)
    device = getattr(hook, "execution_device", None)
    return model.device if device is None else torch.device(device)


def check_in_memory(model: PreTrainedModel, what: str) -> None:
    """Raises HeadcountError if weights of `model` are offloaded, which `what` reads or replaces."""
    away = sorted({str(place) for place in getattr(model, "hf_device_map", {}).values()})
    if any(parameter.is_meta for parameter in model.parameters()):
        raise HeadcountError(
            f"--torch-device auto: {what} needs all weights in memory, and some are left on"
            f" {', '.join(away)}: use more or larger GPUs, --dtype bfloat16, or --torch-device cpu"
        )
