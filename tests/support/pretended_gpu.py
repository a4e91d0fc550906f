"""A device for torch that computes as the CPU does, and keeps its tensors apart from the CPU's.

    python pretended_gpu.py < [{"words": ["convert", "SOURCE", "TARGET", ...], "layers": null}, ...]

Runs commands for which `cuda` is that device, and prints how many operations it computed; one with
a number of `layers` is stopped when it has written so many. As a GPU does, the device refuses an
operation that is also given tensors of the CPU (but numbers, and places to take values from). What
one process calls a device stays so: hence a process of its own.
"""

import json
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

NAME = "pretended"
# Between devices, or of values whose places may lie on the CPU.
_ACROSS = ("copy_", "_to_copy", "index", "index_put_", "_index_put_impl_")
done: Counter[str] = Counter()


class Apart(torch.Tensor):
    """A tensor of the device, which the CPU's tensor `held` computes for."""

    held: torch.Tensor

    @staticmethod
    def __new__(cls, held: torch.Tensor) -> "Apart":
        made: Apart = torch.Tensor._make_wrapper_subclass(
            *(cls, held.shape),
            strides=held.stride(),
            storage_offset=held.storage_offset(),
            dtype=held.dtype,
            device=torch.device(NAME, 0),
        )
        made.held = held
        return made

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """What torch does; it makes tensors of lists of places on a device without asking it."""
        with torch._C.DisableTorchFunctionSubclass():
            if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
                args = (args[0], _places(args[1]), *args[2:])
            if func is torch.Tensor.tolist:
                return args[0].held.tolist()
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return computed(op, args, kwargs or {})


def computed(op: Any, args: Any, kwargs: Any) -> Any:
    """What `op` gives, on the device unless it is to lie elsewhere."""
    name = op._schema.name.removeprefix("aten::")
    done[name] += 1
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)]
    if name not in _ACROSS and any(t.dim() and not isinstance(t, Apart) for t in tensors):
        raise RuntimeError(f"{op}: tensors of the CPU and of another device")
    here = not tensors or isinstance(tensors[0], Apart)
    inside, named = tree_map(_held, (args, kwargs))
    if named.get("device") is not None:
        here = torch.device(named["device"]).type == NAME
        named["device"] = torch.device("cpu") if here else named["device"]
    given = {id(one.held): one for one in tensors if isinstance(one, Apart)}

    def out(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return given.get(id(value)) if id(value) in given else Apart(value) if here else value

    found = op(*inside, **named)
    return args[0] if name == "copy_" else tree_map(out, found)


def _places(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(map(_places, index))
    return torch.tensor(index) if isinstance(index, list) else index


def _held(value: Any) -> Any:
    return value.held if isinstance(value, Apart) else value


def register() -> torch.library.Library:
    """The device is there while the library that is returned lives."""
    _setup_privateuseone_for_python_backend(NAME)
    made = torch.library.Library("_", "IMPL")
    made.fallback(lambda op, *args, **kwargs: computed(op, args, kwargs), "PrivateUse1")
    on_cpu = torch.tensor

    def tensor(data: Any, *, device: Any = None, **options: Any) -> torch.Tensor:
        """torch builds it on a device without asking this one."""
        found = on_cpu(data, **options)
        return found if device is None else found.to(device)

    torch.tensor = tensor
    return made


def stopping(layers: int | None) -> Callable[..., None]:
    """What writes a layer, and stops the run behind the last of so many."""
    written = 0

    def write(*given: Any) -> None:
        nonlocal written
        write_layer(*given)
        written += 1
        if written == layers:
            raise KeyboardInterrupt

    from headcount.convert.rewrite import store

    write_layer = store._write
    return write


def run(command: dict[str, Any]) -> None:
    from headcount.cli import main
    from headcount.convert.rewrite import store

    done.clear()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(store, "_write", stopping(command["layers"]))
        with suppress(SystemExit) if command["layers"] else nullcontext():
            main(command["words"], standalone_mode=False)
    print(json.dumps(dict(done)), file=sys.stderr)


def main() -> None:
    library = register()
    from headcount.running import placement

    known = placement.resolve_device

    def resolve(name: str | None, option: str = "") -> torch.device:
        return torch.device(NAME, 0) if name == "cuda" else known(name, option)

    placement.resolve_device = resolve
    for command in json.load(sys.stdin):
        run(command)
    del library


if __name__ == "__main__":
    main()
