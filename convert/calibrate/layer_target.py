"""What a new attention should give, so that the layer goes on as the original one did."""

from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch

from .layer_calls import Stop
from .layer_hooks import SeenAttention, input_of, watching
from .layer_task import LayerTask
from .output_uses import OutputUse, in_rows


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerRun:
    """One run of a layer: what was seen of its attention, the values that the attention's output
    was added to, with it, and what the layer gave, None where the run ended before."""

    seen: SeenAttention
    at_use: torch.Tensor
    output: torch.Tensor | None


class LayerTarget:
    """Runs a layer and looks where its attention's output is added. If that is not known the
    output itself is aimed at."""

    def __init__(self, task: LayerTask, hidden: torch.Tensor) -> None:
        self._task = task
        self._use: OutputUse | None = None
        if task.is_fitted:
            call = task.calls(task.text.batches[0])
            self._use = task.shared.from_main(
                lambda: task.uses.use(task.layer, call, hidden, task.place)
            )

    @property
    def name(self) -> str:
        """For the record: the module whose input is aimed at, `layer` for the layer's output."""
        return "attention" if self._use is None else (self._use.path or "layer")

    def run(self, batch: slice, hidden: torch.Tensor, *, stop: bool = False) -> LayerRun:
        """Runs the layer on what it is given of a batch, [B, T, D]; `stop`: no further than is
        needed."""
        task, use = self._task, self._use
        noted: list[torch.Tensor] = []
        output, cross = None, task.tensors.where[1]
        with watching(task.layer, task.place, cross=cross) as seen, ExitStack() as stack:
            if use is not None and use.path is not None:
                stack.enter_context(input_of(task.layer, use.path, noted.append, stop=stop))
            with suppress(Stop):
                output = task.calls(batch).run(task.layer, hidden)
        at_use = seen.output if use is None else output
        if noted:
            at_use = in_rows(noted[0], hidden)
        assert at_use is not None
        return LayerRun(seen=seen, at_use=at_use, output=output)

    def target(self, looked: LayerRun, wanted: torch.Tensor) -> torch.Tensor:
        """What the attention should give in the run `looked`, for `wanted` where it is added."""
        if self._use is None:
            return wanted
        assert looked.seen.output is not None
        return looked.seen.output + (wanted - looked.at_use) / self._use.factor
