"""What a torch pickle would do, found out by walking its opcodes. Nothing is ever unpickled.

A pickle is a program for a stack machine. Only the part of it that builds a dict of tensors is
followed, as `torch.save` writes it; every other value is opaque. All names that the program would
import are listed, whatever happens to them.
"""

import io
import pickletools
import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from headcount.model import limits
from headcount.model.errors import InvalidWeightsError

# What a file of tensors needs; `torch.load(weights_only=True)` allows the same and some more.
_TENSOR_GLOBALS = frozenset(
    {
        *("collections.OrderedDict", "torch.Size", "torch.Tensor", "torch.device"),
        *("torch.nn.parameter.Parameter", "torch.storage.UntypedStorage"),
        *(f"torch._utils._rebuild_{n}" for n in ("tensor", "tensor_v2", "tensor_v3", "parameter")),
        "torch._tensor._rebuild_from_type_v2",
    }
)
# torch's name of an element type, and of its storage -> safetensors' name
_ELEMENTS = {
    **{"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16"},
    **{"int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"},
    **{"float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2", "complex64": "C64"},
}
_STORAGES = {
    **{"DoubleStorage": "F64", "FloatStorage": "F32", "HalfStorage": "F16"},
    **{"BFloat16Storage": "BF16", "LongStorage": "I64", "IntStorage": "I32"},
    **{"ShortStorage": "I16", "CharStorage": "I8", "ByteStorage": "U8", "BoolStorage": "BOOL"},
    **{"ComplexFloatStorage": "C64"},
}


def is_harmless(name: str) -> bool:
    """Whether a file of tensors may import `name`."""
    module, _, last = name.rpartition(".")
    known = module == "torch" and (last in _STORAGES or last in _ELEMENTS)
    return known or name in _TENSOR_GLOBALS


@dataclass(frozen=True, slots=True)
class Global:
    """A name that the pickle imports: `module.name`."""

    name: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Storage:
    """A block of bytes, which lies beside the pickle under `key`. `dtype` None: bytes."""

    key: str
    dtype: str | None
    elements: int


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredTensor:
    """A tensor over `storage`: `offset` in elements."""

    storage: Storage
    dtype: str
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """What one pickle imports, in order, and the value that it leaves."""

    imports: tuple[str, ...]
    value: Any


class _Opaque:
    """A value that is not followed."""


_MARK, _OPAQUE = object(), _Opaque()


def walk(data: io.BytesIO, where: str) -> Walk:
    """Follows the pickle at the position of `data`, to its STOP. Raises InvalidWeightsError."""
    machine = _Machine()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of odd escapes in names
            for opcode, argument, _ in pickletools.genops(data):
                machine.step(opcode.name, argument)
    except _LimitError:
        raise InvalidWeightsError(limits.PICKLE_OPCODES.refusal(where)) from None
    except (ValueError, IndexError, KeyError, TypeError, struct.error, OverflowError) as error:
        found = f"; it imports {', '.join(machine.imports)[:200]}" if machine.imports else ""
        raise InvalidWeightsError(f"{where}: not a whole pickle ({error}){found}") from error
    return Walk(tuple(machine.imports), machine.stack[-1] if machine.stack else None)


class _LimitError(Exception):
    pass


@dataclass(slots=True)
class _Machine:
    """The stack and memo of the pickle machine, with values that cannot do anything."""

    stack: list[Any] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)
    imports: dict[str, None] = field(default_factory=dict)
    steps: int = 0

    def step(self, name: str, argument: Any) -> None:
        self.steps += 1
        if self.steps > limits.PICKLE_OPCODES.most:
            raise _LimitError
        action = _ACTIONS.get(name)
        if action is not None:
            action(self, argument)
        elif name not in ("PROTO", "FRAME", "STOP"):
            self.unknown(name, argument)

    def unknown(self, name: str, argument: Any) -> None:
        """Any other opcode, by what pickletools says that it takes from and leaves on the stack."""
        opcode = _OPCODES[name]
        for taken in reversed(opcode.stack_before):
            if taken is pickletools.stackslice:
                self.pop_mark()
            elif taken is not pickletools.markobject:
                self.stack.pop()
        is_plain = type(argument) in (int, str, float, bool) and not opcode.stack_before
        self.stack.extend(argument if is_plain else _OPAQUE for _ in opcode.stack_after)

    def pop_mark(self) -> list[Any]:
        """What stands above the last mark, which goes too."""
        above: list[Any] = []
        while (item := self.stack.pop()) is not _MARK:
            above.append(item)
        return above[::-1]

    def imported(self, module: Any, name: Any) -> Global:
        found = f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else "?"
        self.imports.setdefault(found)
        return Global(found)


_OPCODES = {opcode.name: opcode for opcode in pickletools.opcodes}


def _global(machine: _Machine, argument: str) -> None:
    machine.stack.append(machine.imported(*argument.split(" ", 1)))


def _stack_global(machine: _Machine, _: Any) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(machine.imported(module, name))


def _instance(machine: _Machine, argument: str) -> None:
    machine.pop_mark()
    machine.imported(*argument.split(" ", 1))
    machine.stack.append(_OPAQUE)


def _extension(machine: _Machine, argument: int) -> None:
    machine.stack.append(machine.imported("copyreg.extension", str(argument)))


def _tuple(count: int | None) -> Callable[[_Machine, Any], None]:
    def act(machine: _Machine, _: Any) -> None:
        if count is None:
            machine.stack.append(tuple(machine.pop_mark()))
        else:
            items = [machine.stack.pop() for _ in range(count)]
            machine.stack.append(tuple(reversed(items)))

    return act


def _put(machine: _Machine, argument: int) -> None:
    machine.memo[argument] = machine.stack[-1]


def _memoize(machine: _Machine, _: Any) -> None:
    machine.memo[len(machine.memo)] = machine.stack[-1]


def _get(machine: _Machine, argument: int) -> None:
    machine.stack.append(machine.memo[argument])


def _set_items(machine: _Machine, pairs: list[Any]) -> None:
    target = machine.stack[-1]
    if isinstance(target, dict):
        target.update(
            (k, v) for k, v in zip(pairs[::2], pairs[1::2], strict=True) if isinstance(k, str)
        )


def _set_item(machine: _Machine, _: Any) -> None:
    value, key = machine.stack.pop(), machine.stack.pop()
    _set_items(machine, [key, value])


def _reduce(machine: _Machine, _: Any) -> None:
    arguments, function = machine.stack.pop(), machine.stack.pop()
    machine.stack.append(_call(function, arguments))


def _persistent(machine: _Machine, _: Any) -> None:
    """torch: ("storage", type of storage, key, device, elements)."""
    found = machine.stack.pop()
    value: Any = _OPAQUE
    if isinstance(found, tuple) and len(found) >= 5 and found[0] == "storage":
        kind, key, elements = found[1], found[2], found[4]
        if isinstance(kind, Global) and isinstance(key, str) and type(elements) is int:
            dtype = _STORAGES.get(kind.name.rpartition(".")[2])
            value = Storage(key=key, dtype=dtype, elements=elements)
    machine.stack.append(value)


def _call(function: Any, arguments: Any) -> Any:
    """The value of the calls that build tensors and their dicts."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple):
        return _OPAQUE
    if function.name == "collections.OrderedDict":
        return {}
    if function.name == "torch._utils._rebuild_parameter" and arguments:
        return arguments[0]
    if function.name == "torch._tensor._rebuild_from_type_v2" and len(arguments) > 2:
        return _tensor(arguments[0], arguments[2])
    return _tensor(function, arguments)


def _tensor(function: Any, arguments: Any) -> Any:
    """_rebuild_tensor_v2(storage, offset, size, stride, …); v3 has the dtype in the 7th place."""
    if not isinstance(function, Global) or not isinstance(arguments, tuple) or len(arguments) < 4:
        return _OPAQUE
    storage, offset, shape, stride = arguments[:4]
    if not function.name.startswith("torch._utils._rebuild_tensor") or not isinstance(
        storage, Storage
    ):
        return _OPAQUE
    dtype = storage.dtype
    if function.name.endswith("_v3") and len(arguments) > 6 and isinstance(arguments[6], Global):
        dtype = _ELEMENTS.get(arguments[6].name.rpartition(".")[2])
    if not isinstance(shape, tuple) or not isinstance(stride, tuple):
        return _OPAQUE
    numbers = (offset, *shape, *stride)
    if dtype is None or not all(type(n) is int and n >= 0 for n in numbers):
        return _OPAQUE
    return StoredTensor(storage=storage, dtype=dtype, offset=offset, shape=shape, stride=stride)


def _drop(machine: _Machine, _: Any) -> None:
    machine.stack.pop()


def _drop_marked(machine: _Machine, _: Any) -> None:
    machine.pop_mark()


_ACTIONS: Mapping[str, Callable[[_Machine, Any], None]] = {
    "GLOBAL": _global,
    "STACK_GLOBAL": _stack_global,
    "INST": _instance,
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _extension),
    "MARK": lambda m, _: m.stack.append(_MARK),
    **{"TUPLE": _tuple(None), "EMPTY_TUPLE": _tuple(0)},
    **{f"TUPLE{n}": _tuple(n) for n in (1, 2, 3)},
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _get),
    "MEMOIZE": _memoize,
    "EMPTY_DICT": lambda m, _: m.stack.append({}),
    "SETITEM": _set_item,
    "SETITEMS": lambda m, _: _set_items(m, m.pop_mark()),
    "APPEND": _drop,
    "APPENDS": _drop_marked,
    "BUILD": _drop,
    "REDUCE": _reduce,
    "BINPERSID": _persistent,
    "POP": _drop,
    "POP_MARK": _drop_marked,
    "DUP": lambda m, _: m.stack.append(m.stack[-1]),
    "NEWTRUE": lambda m, _: m.stack.append(True),
    "NEWFALSE": lambda m, _: m.stack.append(False),
    "NONE": lambda m, _: m.stack.append(None),
}
