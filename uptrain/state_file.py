"""Tensors in a safetensors file, one at a time, that one process or many hold: the main process
writes what it gathers, and every process reads what is its own. So a file does not say how many
processes wrote it, and no process holds more than its share and one tensor."""

import json
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from headcount.convert.plan.errors import SelfCheckError
from headcount.convert.stream.reader import DTYPES
from headcount.model.errors import HeadcountError
from headcount.running.team import Team

from .sharding import local, own_rows, whole

_INTEGERS = {"I64": torch.int64, "I32": torch.int32, "U8": torch.uint8, "BOOL": torch.bool}
_NAMES = {dtype: name for name, dtype in {**DTYPES, **_INTEGERS}.items()}


def write_tensors(tensors: Mapping[str, Tensor], path: Path, team: Team) -> None:
    """Writes `path`, which must not exist, in the main process; all call it together. Raises
    OSError."""
    team.from_main(lambda: _begin(path, tensors))
    for tensor in tensors.values():
        with team.computing():
            gathered = whole(tensor.detach())
        team.from_main(lambda value=gathered: _append(value, path))  # type: ignore[misc]


def read_tensors(path: Path, into: Mapping[str, Tensor]) -> None:
    """Fills the tensors `into` with what `write_tensors` wrote, each with its rows if it is shared.
    Raises HeadcountError if it cannot be read, SelfCheckError if it holds other tensors."""
    with _reading(path), safe_open(path, framework="pt") as file:
        found = set(file.keys())
        for name, tensor in into.items():
            if name not in found or list(tensor.shape) != file.get_slice(name).get_shape():
                raise SelfCheckError(f"{path}: does not hold this model's weights ({name!r})")
            _fill(tensor, file, name)
    if found != into.keys():
        name = min(found - into.keys())
        raise SelfCheckError(f"{path}: does not hold this model's weights ({name!r})")


@torch.no_grad()
def _fill(tensor: Tensor, file: Any, name: str) -> None:
    rows, own = own_rows(tensor), local(tensor)
    if own.numel():
        own.copy_(file.get_tensor(name) if rows is None else file.get_slice(name)[rows])


def tensor_names(path: Path) -> frozenset[str]:
    """What the file holds. Raises HeadcountError."""
    with _reading(path), safe_open(path, framework="pt") as file:
        return frozenset(file.keys())


def _begin(path: Path, tensors: Mapping[str, Tensor]) -> None:
    with path.open("xb") as file:
        file.write(_header(tensors))


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    entries: dict[str, Any] = {}
    position = 0
    for name, tensor in tensors.items():
        end = position + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [position, end],
        }
        position = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _append(tensor: Tensor, path: Path) -> None:
    with path.open("ab") as file:
        file.write(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy().data)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, SafetensorError) as error:
        reason = str(error)
    except RuntimeError as error:  # torch's words for a file that it cannot open or map
        reason = str(error).partition("\n")[0]
        if not reason.startswith("unable to "):
            raise
    else:
        return
    raise HeadcountError(
        f"{path}: cannot be read: {reason}; try again, or begin anew with --no-resume"
    )
