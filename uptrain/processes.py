"""The processes that share a training, as accelerate runs them: one, or those of a launcher."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

import torch
from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin, broadcast_object_list, gather_object

from headcount.model.errors import HeadcountError
from headcount.running.errors import OtherProcessError
from headcount.running.load import resolve_device

from .uptrain_request import ComputeDtype

Value = TypeVar("Value")
_PRECISIONS: Mapping[ComputeDtype | None, str | None] = {
    **{None: None, "float32": "no", "bfloat16": "bf16"}
}
_TEACHER_DTYPES = {"no": torch.float32, "fp16": torch.float16}


@contextmanager
def quiet_accelerate() -> Iterator[None]:
    """Only errors of accelerate's log inside: it tells of tied weights at every checkpoint."""
    logger = logging.getLogger("accelerate")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class Processes:
    """This process among those that share the work. Only the main one prints and writes."""

    def __init__(self, *, dtype: ComputeDtype | None, device: str | None, parts: int) -> None:
        """`parts`: how many parts of a batch are computed one after the other, in each process.
        Raises HeadcountError for a device that is not there."""
        if device is not None and resolve_device(device).type == "cuda" and device != "cuda":
            raise HeadcountError(
                f"--torch-device {device}: a launcher gives each process its GPU; cpu or cuda"
            )
        on_cpu = device == "cpu" or not torch.cuda.is_available()
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        self.accelerator = Accelerator(
            cpu=on_cpu,
            mixed_precision=_PRECISIONS[dtype],
            gradient_accumulation_plugin=GradientAccumulationPlugin(
                num_steps=parts, sync_with_dataloader=False
            ),
        )

    @property
    def is_main(self) -> bool:
        return bool(self.accelerator.is_main_process)

    @property
    def count(self) -> int:
        return int(self.accelerator.num_processes)

    @property
    def index(self) -> int:
        return int(self.accelerator.process_index)

    @property
    def device(self) -> torch.device:
        device: torch.device = self.accelerator.device
        return device

    @property
    def teacher_dtype(self) -> torch.dtype:
        """What the teacher, of whom nothing is learned, is loaded as."""
        return _TEACHER_DTYPES.get(self.accelerator.mixed_precision, torch.bfloat16)

    def together(self, act: Callable[[], Value]) -> Value:
        """What `act` gives in each process. An error in one ends all: the main process raises it,
        the others leave quietly, with its exit code."""
        if self.count == 1:
            return act()
        value, failure = None, None
        try:
            value = act()
        except HeadcountError as error:
            failure = error
        said = [None if failure is None else (str(failure), failure.exit_code)]
        self._raise_first(gather_object(said), failure)
        return value  # type: ignore[return-value] # no failure: act gave it

    def main_only(self, act: Callable[[], Value]) -> Value:
        """What `act` gives in the main process, in all of them."""
        if self.count == 1:
            return act()
        value = self.together(lambda: act() if self.is_main else None)
        shared = [value]
        broadcast_object_list(shared)
        return shared[0]  # type: ignore[return-value]

    def _raise_first(
        self, said: list[tuple[str, int] | None], failure: HeadcountError | None
    ) -> None:
        failed = [(number, text) for number, text in enumerate(said) if text is not None]
        if not failed:
            return
        number, (message, exit_code) = failed[0]
        if not self.is_main:
            raise SystemExit(exit_code)
        if failure is not None:
            raise failure
        raise OtherProcessError(f"process {number}: {message}", exit_code)

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Leaves the group of processes in the end, and says which process an error is from."""
        try:
            yield
        except HeadcountError as error:
            if self.is_main:
                raise
            raise OtherProcessError(f"process {self.index}: {error}", error.exit_code) from error
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
