"""The student's weights: loaded to be trained, kept between phases, rounded in the end."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import PreTrainedModel

from headcount.convert.plan.errors import SelfCheckError
from headcount.model.errors import HeadcountError
from headcount.running.load import load_model
from headcount.running.runnable import RunnableModel

STUDENT_PREFIX = "student."  # of its weights in the module that is trained
_WRAPPED = ("_fsdp_wrapped_module.", "_orig_mod.", "_checkpoint_wrapped_module.", "module.")


def load_student(runnable: RunnableModel) -> tuple[PreTrainedModel, dict[str, torch.dtype]]:
    """The model in float32 on the CPU, and the element types that it was stored in, by the names
    of its state dict. Raises HeadcountError."""
    model = load_model(runnable, dtype=None, device=torch.device("cpu")).model
    stored = {name: value.dtype for name, value in model.state_dict().items()}
    return model.float(), stored


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Writes a state dict; of tensors that share their memory (tied weights) the first."""
    seen: set[tuple[int, torch.Size]] = set()
    kept: dict[str, Tensor] = {}
    for name, tensor in state.items():
        place = (tensor.data_ptr(), tensor.shape)
        if place not in seen or tensor.numel() == 0:
            seen.add(place)
            kept[name] = tensor.contiguous()
    save_file(kept, path)


def load_weights(model: PreTrainedModel, path: Path) -> None:
    """Reads what `save_weights` wrote. Raises HeadcountError if it cannot be read, SelfCheckError
    if weights are missing."""
    found = _read(path)
    left = model.load_state_dict(found, strict=False)
    own = model.state_dict()
    given = {own[name].data_ptr() for name in found if name in own}
    missing = [name for name in left.missing_keys if own[name].data_ptr() not in given]
    if missing or left.unexpected_keys:
        name = min([*missing, *left.unexpected_keys])
        raise SelfCheckError(f"{path}: does not hold this model's weights ({name!r})")


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = str(error)
    except RuntimeError as error:  # torch's words for a file that it cannot open or map
        reason = str(error).partition("\n")[0]
        if not reason.startswith("unable to "):
            raise
    raise HeadcountError(
        f"{path}: cannot be read: {reason}; try again, or begin anew with --no-resume"
    )


def own_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The student's part of the trained module's state dict, by its own names."""
    return {name.removeprefix(STUDENT_PREFIX): value for name, value in state.items()}


@torch.no_grad()
def round_weights(module: nn.Module, stored: Mapping[str, torch.dtype]) -> None:
    """Rounds every weight to what the element type that it will be stored in can hold, so that
    what is measured is what is written. Works on shards, too: it goes number by number."""
    for name, parameter in _named(module):
        dtype = stored[name]
        if dtype.is_floating_point and dtype.itemsize < parameter.dtype.itemsize:
            parameter.copy_(parameter.to(dtype).to(parameter.dtype))


def _named(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in module.named_parameters():
        for wrapped in _WRAPPED:
            name = name.replace(wrapped, "")
        yield name.removeprefix(STUDENT_PREFIX), parameter
