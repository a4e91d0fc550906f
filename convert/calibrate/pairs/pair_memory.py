"""What an encoder gives of every pair, and what else layers are given, kept once."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ..state_rows import StateRows


class RaggedRows(StateRows):
    """Rows that are a batch each, [1, tokens, width], as long as they were written."""

    def __init__(self, rows: StateRows) -> None:
        self._rows, self._lengths = rows, dict[int, int]()

    @property
    def on_disk(self) -> bool:
        return self._rows.on_disk

    def __getitem__(self, rows: slice) -> Tensor:
        found = self._rows[rows]
        return found[:, : self._lengths.get(rows.start, found.shape[1])]

    def __setitem__(self, rows: slice, values: Tensor) -> None:
        whole = self._rows.template
        padded = torch.zeros(1, *whole.shape, dtype=whole.dtype, device=values.device)
        padded[:, : values.shape[1]] = values
        self._rows[rows] = padded
        self._lengths[rows.start] = values.shape[1]

    def close(self) -> None:
        self._rows.close()


class _Memory:
    """Stands for what the encoder gives."""


_MEMORY = _Memory()


class PairMemory:
    """`rows` are what the encoder gives of each pair; None: nothing is known of it. Arguments of a
    call are kept without it, and equal tensors, masks and position biases mostly, once."""

    def __init__(self, rows: StateRows | None) -> None:
        self._rows = rows
        self._kept: dict[tuple[torch.Size, torch.dtype], list[Tensor]] = {}

    def kept(self, value: Any, batch: slice) -> Any:
        """`value`, which may hold tensors, to be given back by `whole`."""
        return self._each(value, self._of(None if self._rows is None else self._rows[batch]))

    def whole(self, value: Any, batch: slice) -> Any:
        """What `kept` was given."""
        return self._each(value, lambda one: self[batch] if one is _MEMORY else one)

    def __getitem__(self, batch: slice) -> Tensor:
        """[1, S, E]: what the encoder gives of a pair."""
        assert self._rows is not None
        return self._rows[batch]

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()

    def _each(self, value: Any, of: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: self._each(one, of) for key, one in value.items()}
        if type(value) in (tuple, list):
            return type(value)(self._each(one, of) for one in value)
        return of(value)

    def _of(self, memory: Tensor | None) -> Any:
        def keep(value: Any) -> Any:
            if not isinstance(value, Tensor):
                return value
            if memory is not None and value.shape == memory.shape and torch.equal(value, memory):
                return _MEMORY
            return self._once(_thin(value))

        return keep

    def _once(self, value: Tensor) -> Tensor:
        known = self._kept.setdefault((value.shape, value.dtype), [])
        found = next((one for one in known if torch.equal(one, value)), None)
        if found is None:
            known.append(value)
        return value if found is None else found


def _thin(value: Tensor) -> Tensor:
    """Equal numbers are one that is repeated."""
    if value.numel() < 2 or not bool((value == value.flatten()[0]).all()):
        return value
    return value.flatten()[0].clone().expand(value.shape)
