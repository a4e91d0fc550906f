"""Configs of every type with a value of another kind in one place, and headers with another shape.

Where a config may hold something is asked of the program: its class's defaults, and every key that
an audit or a plan looked for.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from fuzz_mutators import ODD, alike
from golden_files import tensors_of, tiny_configs
from headcount.arch.class_defaults import class_defaults
from headcount.audit.auditing import audit_source
from headcount.model.errors import HeadcountError
from headcount.sources.found import FoundModel

Path = tuple[Any, ...]
_UNREAD = ("id2label", "label2id")
_SHAPES = ("", "8", "8x2x2", "0x0", "0x64", "64x0", "2x3", "1x100000000000")


def whole_config(model_type: str) -> dict[str, Any]:
    """The tiny config of a type, with every default of its classes written out."""
    return _filled(model_type, dict(tiny_configs().get(model_type, {"model_type": model_type})))


def _filled(model_type: str, given: Mapping[str, Any]) -> dict[str, Any]:
    known = class_defaults(model_type)
    config = _joined(known.defaults if known else {}, given)
    for key, value in config.items():
        if isinstance(value, dict) and isinstance(value.get("model_type"), str):
            config[key] = _filled(value["model_type"], value)
    return config


def _joined(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    return {**under} | {
        key: _joined(under[key], value)
        if isinstance(value, dict) and isinstance(under.get(key), dict)
        else value
        for key, value in over.items()
    }


class _Recording(dict[str, Any]):
    """A config that notes the path of each key that is looked for."""

    def __init__(self, config: Mapping[str, Any], path: Path, asked: set[Path]) -> None:
        super().__init__(
            {
                key: _Recording(value, (*path, key), asked) if isinstance(value, dict) else value
                for key, value in config.items()
            }
        )
        self._path, self._asked = path, asked

    def get(self, key: str, default: Any = None) -> Any:
        self._asked.add((*self._path, key))
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._asked.add((*self._path, key))
        return super().__contains__(key)


def _asked(config: Mapping[str, Any]) -> set[Path]:
    asked: set[Path] = set()
    recording = _Recording(config, (), asked)
    with suppress(HeadcountError):  # then it is what was asked for until then
        audit_source(FoundModel(kind="config", id="m", where="config.json", config=recording))
    return {path for path in asked if all(isinstance(key, str) for key in path)}


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    """The way to each value, and to the first one of a list."""
    items = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list) and value:
        items = [(0, value[0])]
    for key, child in items:
        yield (*path, key)
        if key not in _UNREAD:
            yield from _paths(child, (*path, key))


def changed_configs(model_type: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place and value, config) for each place of the config of a type and each odd value."""
    config = whole_config(model_type)
    for path in sorted({*_paths(config), *_asked(config)}, key=str):
        for value in (*ODD, *alike(_at(config, path))):
            name = f"{'.'.join(map(str, path))} = {value!r:.60}"
            yield name, _with(config, path, value)


def _at(value: Any, path: Path) -> Any:
    for key in path:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def _with(value: Any, path: Path, new: Any) -> Any:
    first, *rest = path
    copy: Any = list(value) if isinstance(value, list) else dict(value or {})
    copy[first] = _with(_at(value, (first,)), tuple(rest), new) if rest else new
    return copy


def changed_headers(row: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(what is changed, checkpoint) for one tensor of each kind of a golden checkpoint: with
    another shape or type, without it, and with one more of its kind."""
    tensors = dict(tensors_of(row))
    kinds = {re.sub(r"\d+", "#", name): name for name in reversed(tensors)}
    for name in kinds.values():
        for what, changed in _changes(name, tensors):
            yield f"{name}: {what}", {**row, "tensors": changed}


def _changes(name: str, tensors: dict[str, str]) -> Iterator[tuple[str, dict[str, str]]]:
    dtype, _, sizes = tensors[name].rpartition(" ")
    for shape in _SHAPES:
        yield f"shape {shape}", {**tensors, name: f"{dtype} {shape}"}
    yield "gone", {other: shape for other, shape in tensors.items() if other != name}
    yield "integers", {**tensors, name: f"I32 {sizes}"}
    yield "numbered", {**tensors, f"{name}.9999999999": f"{dtype} {sizes}", f"{name}.²": "BF16 8"}
    number = re.search(r"(?<=\.)\d+(?=\.)|^\d+(?=\.)", name)
    for new in ("7", "99999999", "9" * 5000) if number else ():
        assert number is not None
        beyond = name[: number.start()] + new + name[number.end() :]
        for shape in ("8", sizes):
            yield f"layer {new[:9]} of {shape}", {**tensors, beyond: f"{dtype} {shape}"}
