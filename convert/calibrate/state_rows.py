"""Rows of hidden states [rows, tokens, hidden_size]: in memory, or in an unnamed temporary file."""

import errno
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

import torch

from headcount.model.errors import WriteError

from ..plan.errors import BadValuesError
from .placed import CPU

# What the rows of one conversion may take in memory, all of them together.
MEMORY_BUDGET = 2 * 2**30


class NotFiniteStatesError(BadValuesError):
    """NaN or infinity in what a model computes of a text."""


class StateRows:
    """`rows[start:stop]` gives and takes [stop - start, tokens, hidden_size], on `device`; they are
    kept in main memory, or in a file."""

    def __init__(
        self,
        values: torch.Tensor | None,
        file: BinaryIO | None,
        template: torch.Tensor,
        device: torch.device,
    ) -> None:
        self._values, self._file, self._template = values, file, template
        self._device = device

    @property
    def on_disk(self) -> bool:
        return self._file is not None

    @property
    def template(self) -> torch.Tensor:
        """[tokens, width], as one row is."""
        return self._template

    def __getitem__(self, rows: slice) -> torch.Tensor:
        """A copy, so that what is written later does not change what was read."""
        if self._values is not None:
            return self._values[rows].to(self._device, copy=True)
        assert self._file is not None
        shape = (rows.stop - rows.start, *self._template.shape)
        read = torch.empty(shape, dtype=self._template.dtype)
        self._seek(rows)
        left = memoryview(read.numpy()).cast("B")  # type: ignore[arg-type]
        with _temporary():
            while left:
                count = cast(int, self._file.readinto(left))  # type: ignore[attr-defined]
                if not count:
                    raise OSError(errno.EIO, "a file became shorter")
                left = left[count:]
        return read.to(self._device)

    def __setitem__(self, rows: slice, values: torch.Tensor) -> None:
        """Raises NotFiniteStatesError, and WriteError where the file cannot take them."""
        if not bool(values.isfinite().all()):
            raise NotFiniteStatesError
        if self._values is not None:
            self._values[rows] = values
            return
        assert self._file is not None
        self._seek(rows)
        left = memoryview(values.cpu().contiguous().numpy()).cast("B")  # type: ignore[arg-type]
        with _temporary():
            while left:  # a disk that is nearly full takes a part
                left = left[self._file.write(left) :]

    def __iter__(self) -> Iterator[torch.Tensor]:
        raise TypeError("rows are read in slices")

    def close(self) -> None:
        """Gives memory or file back."""
        self._values = None
        if self._file is not None:
            self._file.close()

    def _seek(self, rows: slice) -> None:
        assert self._file is not None
        width = self._template.numel() * self._template.element_size()
        self._file.seek(rows.start * width)


def new_rows(
    count: int,
    template: torch.Tensor,
    *,
    held: int,
    budget: int = MEMORY_BUDGET,
    folder: Path | None = None,
    device: torch.device = CPU,
) -> StateRows:
    """Room for `count` rows like `template` [tokens, hidden_size], of which `held` such rooms share
    the budget in bytes: beyond it, in a file in `folder` or the system's place for such. They
    are given on `device`. Raises WriteError."""
    nbytes = count * template.numel() * template.element_size()
    if nbytes * held <= budget:
        shape = (count, *template.shape)
        return StateRows(torch.zeros(shape, dtype=template.dtype), None, template, device)
    with _temporary():
        file = cast(BinaryIO, tempfile.TemporaryFile(dir=folder, buffering=0))  # noqa: SIM115
    return StateRows(None, file, template, device)


@contextmanager
def _temporary() -> Iterator[None]:
    """An OSError inside is a failure of the place for temporary files, not of the target's."""
    try:
        yield
    except OSError as error:
        try:
            place = tempfile.gettempdir()
        except OSError:  # there is none that may be written to
            place = "the folder for temporary files"
        raise WriteError(
            f"{place}: the hidden states of the calibration text cannot be kept there:"
            f" {error.strerror or error}; set TMPDIR to a folder with room for them, or lower"
            " --calibration-tokens; nothing was kept"
        ) from error


class Room:
    """Room for as many rows of whatever width is asked for, one width at a time; `of` makes of
    rows what is handed out."""

    def __init__(
        self,
        count: int,
        tokens: int,
        dtype: torch.dtype,
        budget: int,
        of: Callable[[StateRows], StateRows] = lambda rows: rows,
        device: torch.device = CPU,
    ) -> None:
        self._device = device
        self._count, self._tokens, self._dtype, self._budget = count, tokens, dtype, budget
        self._of = of
        self._made: tuple[int, StateRows] | None = None

    def rows(self, width: int) -> StateRows:
        """[count, tokens, width], whatever they hold; rows of another width are gone."""
        if self._made is None or self._made[0] != width:
            self.close()
            template = torch.empty(self._tokens, width, dtype=self._dtype)
            made = new_rows(self._count, template, held=1, budget=self._budget, device=self._device)
            self._made = width, self._of(made)
        return self._made[1]

    def close(self) -> None:
        if self._made is not None:
            self._made[1].close()
        self._made = None
