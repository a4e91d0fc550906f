"""Where a training is computed: by which processes, on what, in which type, with whole weights in
each process or a share."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

from headcount.model.errors import HeadcountError
from headcount.running.placement import AUTO, Placement, resolve_device, resolve_placement
from headcount.running.team import Team

from .launch_settings import LaunchSettings, launch_settings
from .sharding import Sharding
from .uptrain_request import UptrainRequest

_HOW = "torchrun --nproc_per_node N -m headcount uptrain … --shard"


@dataclass(frozen=True, kw_only=True, slots=True)
class Computing:
    """The same in all processes of `team`, but for the device. `sharding`: how weights are shared,
    None where each process has all of them."""

    team: Team
    device: torch.device
    teacher: Placement  # of the original: as `device`, or spread over all devices
    dtype: torch.dtype  # float32 or bfloat16
    sharding: Sharding | None

    def prepare(self, module: nn.Module) -> nn.Module:
        """`module` on its device, so that the gradients of a backward are the means over all
        processes; it may be changed in place."""
        if self.sharding is not None:
            return self.sharding.shard(module)
        module = module.to(self.device)
        return DistributedDataParallel(module) if self.team.count > 1 else module

    def autocast(self) -> torch.autocast:
        """Computes in `dtype` inside. What is cast is not kept: it would be all of the weights."""
        return torch.autocast(
            self.device.type,
            self.dtype,
            enabled=self.dtype != torch.float32,
            cache_enabled=self.sharding is None,
        )

    def added_up(self, module: nn.Module) -> AbstractContextManager[None]:
        """A backward inside adds to the gradients, which processes share later."""
        if isinstance(module, DistributedDataParallel):
            return module.no_sync()
        return nullcontext()

    def summed(self, value: Tensor) -> Tensor:
        """The sum of `value` over the processes, in all of them."""
        if self.team.count > 1:
            dist.all_reduce(value)
        return value


def choose_computing(request: UptrainRequest, team: Team) -> Computing:
    """What request and launcher ask for. Raises HeadcountError for what cannot be had."""
    launch = launch_settings()
    teacher = _placement(request, launch)
    device = teacher.inputs
    dtype = request.dtype or launch.dtype or "float32"
    if request.shard and team.count == 1:
        raise HeadcountError(
            f"--shard: weights are shared by the processes of a launcher, and this is one: {_HOW}"
        )
    computed = torch.bfloat16 if dtype == "bfloat16" else torch.float32
    sharding = None
    if team.count > 1 and (request.shard or launch.shard):
        sharding = Sharding(
            mesh=init_device_mesh(device.type, (team.count,)),
            dtype=computed,
            reshard=launch.reshard,
        )
    return Computing(team=team, device=device, teacher=teacher, dtype=computed, sharding=sharding)


def _placement(request: UptrainRequest, launch: LaunchSettings) -> Placement:
    wanted = "cpu" if request.device is None and launch.cpu else request.device
    if wanted == AUTO:
        return resolve_placement(wanted)
    device = resolve_device(wanted)
    if device.type == "cpu":
        return Placement(inputs=device)
    if wanted not in (None, "cuda"):
        raise HeadcountError(
            f"--torch-device {device}: a launcher gives each process its GPU; cpu, cuda or auto"
        )
    return Placement(inputs=torch.device("cuda", torch.cuda.current_device()))
