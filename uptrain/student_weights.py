"""The student's weights: loaded to be trained, rounded in the end, gathered to be written."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.initialization import no_init_weights

from headcount.running.load import load_model
from headcount.running.placement import Placement
from headcount.running.runnable import RunnableModel
from headcount.running.team import Team

from .sharding import local, whole


def load_student(runnable: RunnableModel) -> tuple[PreTrainedModel, dict[str, torch.dtype]]:
    """The model in float32 on the CPU, and the element types that it was stored in, by the names
    of its state dict. Raises HeadcountError."""
    model = load_model(runnable, dtype=None, place=Placement(inputs=torch.device("cpu"))).model
    stored = {name: value.dtype for name, value in model.state_dict().items()}
    return model.float(), stored


def keep_fixed(model: PreTrainedModel) -> None:
    """Keeps from learning what the class of a model makes without a gradient, sinusoids of
    positions (Whisper, Marian, Pegasus): transformers forgets that where it loads weights."""
    with torch.device("meta"), no_init_weights():
        made = type(model)(deepcopy(model.config))
    fixed = {name for name, parameter in made.named_parameters() if not parameter.requires_grad}
    for name, parameter in model.named_parameters():
        if name in fixed:
            parameter.requires_grad_(False)


def kept_tensors(student: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint holds of a model: its parameters, each once, and the buffers that it
    stores, by their names."""
    stored = student.state_dict().keys()
    buffers = {name: buffer for name, buffer in student.named_buffers() if name in stored}
    return {**dict(student.named_parameters()), **buffers}


@torch.no_grad()
def round_weights(student: nn.Module, stored: Mapping[str, torch.dtype]) -> None:
    """Rounds every weight to what the element type that it will be stored in can hold, so that
    what is measured is what is written."""
    for name, parameter in student.named_parameters():
        dtype, own = stored[name], local(parameter)
        if dtype.is_floating_point and dtype.itemsize < own.dtype.itemsize:
            own.copy_(own.to(dtype).to(own.dtype))


def stored_state(
    student: nn.Module, stored: Mapping[str, torch.dtype], team: Team
) -> dict[str, Tensor]:
    """The state dict on the CPU in the main process, in the types that it is `stored` in, and
    nothing in the others; names of one weight have one tensor. All call it together."""
    gathered: dict[int, Tensor] = {}
    state: dict[str, Tensor] = {}
    for name, tensor in _places(student):
        if id(tensor) not in gathered:
            with team.computing():
                found = whole(tensor.detach())
            gathered[id(tensor)] = found.to("cpu", stored[name]) if team.is_main else torch.empty(0)
        state[name] = gathered[id(tensor)]
    return state if team.is_main else {}


def _places(student: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Every name of a state dict, with the parameter or buffer itself."""
    wanted = student.state_dict().keys()
    for name, tensor in (
        *student.named_parameters(remove_duplicate=False),
        *student.named_buffers(remove_duplicate=False),
    ):
        if name in wanted:
            yield name, tensor
