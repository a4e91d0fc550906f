"""Values from one process to others: tensors as they lie in memory, the rest pickled.

What is read was written by a process of the same launch, which runs the same code.
"""

import io
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

_Like = tuple[torch.dtype, torch.Size]


class _Pickler(pickle.Pickler):
    """Leaves tensors out, and keeps them in `tensors`."""

    def __init__(self, into: io.BytesIO) -> None:
        super().__init__(into)
        self.tensors: list[Tensor] = []

    def persistent_id(self, value: Any) -> int | None:
        if not isinstance(value, Tensor):
            return None
        self.tensors.append(value)
        return len(self.tensors) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, read: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(read)
        self._tensors = tensors

    def persistent_load(self, number: int) -> Tensor:
        return self._tensors[number]


def broadcast(value: Any, *, source: int) -> Any:
    """What process `source` gives as `value`, in all."""
    is_source = dist.get_rank() == source
    written = io.BytesIO()
    pickler = _Pickler(written)
    if is_source:
        pickler.dump(value)
    said: list[Any] = [(written.getvalue(), _likes(pickler.tensors))]
    dist.broadcast_object_list(said, src=source)
    shell, likes = said[0]
    tensors = pickler.tensors if is_source else [_empty(like) for like in likes]
    for tensor in tensors:
        if tensor.numel():
            dist.broadcast(_bytes(tensor), src=source)
    return value if is_source else _Unpickler(io.BytesIO(shell), tensors).load()


def send(tensors: Iterable[Tensor], *, to: int) -> None:
    """Hands tensors to the process `to`, which calls `received`."""
    listed = list(tensors)
    dist.send_object_list([_likes(listed)], dst=to)
    for tensor in listed:
        if tensor.numel():
            dist.send(_bytes(tensor), dst=to)


def received(source: int) -> Iterator[Tensor]:
    """What the process `source` sends, one tensor at a time; all have to be taken."""
    said: list[Any] = [None]
    dist.recv_object_list(said, src=source)
    for like in said[0]:
        tensor = _empty(like)
        if tensor.numel():
            dist.recv(_bytes(tensor), src=source)
        yield tensor


def _likes(tensors: Iterable[Tensor]) -> list[_Like]:
    return [(tensor.dtype, tensor.shape) for tensor in tensors]


def _empty(like: _Like) -> Tensor:
    dtype, shape = like
    return torch.empty(shape, dtype=dtype)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
