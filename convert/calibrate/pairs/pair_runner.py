"""An attention of an encoder-decoder by itself, which is called otherwise for each pair."""

import torch

from ..attention_runner import AttentionRunner, ModuleCall, with_hidden
from ..layer_hooks import SeenAttention
from ..layer_task import LayerTask
from .pair_memory import PairMemory


class PairRunner(AttentionRunner):
    """Keeps how the layer calls its attention for each pair."""

    learns = None

    def __init__(self, task: LayerTask, memory: PairMemory) -> None:
        super().__init__(task.layer, task.place, task.tensors, task.read, task.heads.subset)
        self._memory = memory
        self._calls: dict[int, ModuleCall] = {}

    def called(self, batch: slice, seen: SeenAttention) -> None:
        assert seen.call is not None
        _, args, kwargs = with_hidden(seen.call, torch.empty(0))
        self._calls[batch.start] = self._memory.kept((args, kwargs), batch)

    def _call_of(self, batch: slice) -> ModuleCall:
        args, kwargs = self._memory.whole(self._calls[batch.start], batch)
        return args, kwargs


def runner_of(task: LayerTask) -> AttentionRunner:
    """What runs the attention of a task alone."""
    if task.memory is not None:
        return PairRunner(task, task.memory)
    return AttentionRunner(task.layer, task.place, task.tensors, task.read, task.heads.subset)
