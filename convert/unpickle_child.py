"""A program of its own that turns one file of torch.save into safetensors.

    python unpickle_child.py SOURCE TARGET {tied|untied}

What it loads can crash this process and no other. `tied`: of tensors with the same storage only
the first is written; `untied`: all are. Exit status 3: TARGET cannot be written.
"""

import sys

# Python puts this folder first on the path: its modules are not those that torch asks for.
if not (sys.flags.isolated or getattr(sys.flags, "safe_path", False)):
    del sys.path[0]

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

CANNOT_WRITE = 3  # an exit status
# Where training checkpoints hold their state dict, as the audit looks for it.
_NESTS = ("state_dict", "model_state_dict", "model", "module")


def main(source: str, target: str, tied: str) -> None:
    """Raises what torch and safetensors raise: the last line of stderr is for the parent."""
    limit_memory(Path(source).stat().st_size)
    with Path(source).open("rb") as file:
        is_zip = file.read(4) == b"PK\x03\x04"
    loaded = torch.load(source, map_location="cpu", weights_only=True, mmap=is_zip)
    tensors = dict(distinct(state_tensors(loaded), tied == "tied"))
    try:
        save_file(tensors, target, metadata={"format": "pt"})
    except (OSError, SafetensorError) as error:
        print(error, file=sys.stderr)
        sys.exit(CANNOT_WRITE)


def limit_memory(nbytes: int) -> None:
    """Room for torch and for the file several times, where the system can set a limit."""
    try:
        import resource
    except ImportError:
        return
    limit = 32 * 2**30 + 4 * nbytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard in (-1, resource.RLIM_INFINITY) or hard > limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


def state_tensors(loaded: Any) -> Mapping[str, torch.Tensor]:
    """The tensors of a state dict, or of the one inside a training checkpoint."""
    for holder in (loaded, *(loaded.get(nest) for nest in _NESTS)):
        if isinstance(holder, dict):
            found = {n: t for n, t in holder.items() if isinstance(t, torch.Tensor)}
            if found:
                return found
    return {}


def distinct(tensors: Mapping[str, torch.Tensor], tied: bool) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors that share no memory: copies, or without those that are the same as an earlier."""
    seen: set[tuple[Any, ...]] = set()
    storages: set[int] = set()
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        storage = tensor.untyped_storage().data_ptr()
        if not (tied and tensor.numel() and place in seen):
            yield name, tensor.clone() if storage in storages else tensor.contiguous()
        seen.add(place)
        storages.add(storage)


if __name__ == "__main__":
    main(*sys.argv[1:])
