"""The golden files in tests/golden: what the command line says of fixed models, line by line.

`catalogue.txt` has a line a model, `types.txt` two a model_type (its bare config and a tiny one),
`plans.txt` one a command, `conversions.txt` some a tiny checkpoint. Each begins with its name, from
which the line is made anew; nothing here but the command line is asked. What is read is written
once: `configs.jsonl` and `checkpoints.jsonl`, the headers of checkpoints that transformers saved.
"""

import json
import re
import shlex
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from golden_lines import SEPARATOR, audit_line, conversion_line, plan_line
from headcount.cli import main

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
LISTS = {
    "rules.txt": ("rules",),
    "devices.txt": ("devices",),
    "families.csv": ("families", "--format", "csv"),
    "convertible.csv": ("convert", "--families", "--format", "csv"),
}
# Of every checkpoint; `--kv-heads 0:2,1:1` is another number in each layer.
CONVERSIONS = ("--kv-heads 2 --quality fast", "--kv-heads 0:2,1:1")
SHORT, LONG = "5", "20"  # tokens: below and above the windows of tiny configs
CONTEXT = "1000"  # of the second audit of a model of the catalogue
Lines = dict[str, str]
BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "BF16": 2, "F16": 2, "U8": 1, "BOOL": 1}


class Refused(Exception):
    """What the command line said instead of a report, without folders."""


def document(folder: Path, *command: str) -> Any:
    """The JSON that a command prints. Raises Refused."""
    result = CliRunner().invoke(main, [*command, "--format", "json"])
    if result.exit_code not in (0, 1) or not result.stdout:
        said = result.stderr.strip().removeprefix("Error: ") or repr(result.exception)
        raise Refused(said.replace(f"{folder}/", "").partition("\n")[0])
    return json.loads(result.stdout.replace(f"{folder}/", ""))


def text(name: str) -> str:
    """One of LISTS as it is printed, without blanks at the ends of lines."""
    printed = CliRunner().invoke(main, list(LISTS[name])).stdout
    return "".join(line.rstrip() + "\n" for line in printed.splitlines())


def names(kind: str) -> list[str]:
    """The names of all lines of a file, in its order."""
    return _SETS[kind][0]()


def made(kind: str, folder: Path, only: Iterable[str] | None = None) -> Lines:
    """The lines of `kind` by their names, as they are now; files are written to `folder`."""
    make = _SETS[kind][1]
    return {name: _line(name, make, folder) for name in (names(kind) if only is None else only)}


def recorded(kind: str) -> Lines:
    """The lines of a golden file by their names."""
    lines = (GOLDEN / f"{kind}.txt").read_text(encoding="utf-8").splitlines()
    return {line.partition(SEPARATOR)[0]: line for line in lines}


def _line(name: str, make: Callable[[str, Path], str], folder: Path) -> str:
    try:
        return f"{name}{SEPARATOR}{make(name, folder)}"
    except Refused as refusal:
        return f"{name}{SEPARATOR}refused: {refusal}"


def _models() -> list[str]:
    return [model["id"] for model in document(GOLDEN, "models")["models"]]


def _model(name: str, folder: Path) -> str:
    return audit_line(
        document(folder, "audit", name), document(folder, "audit", name, "--context", CONTEXT)
    )


@cache
def types() -> list[str]:
    """Every model_type that can be audited."""
    return [row["model_type"] for row in document(GOLDEN, "families")["families"]]


def _configs() -> list[str]:
    return [f"{name}{more}" for name in types() for more in ("", " tiny") if _config(name, more)]


def _config(model_type: str, more: str) -> Mapping[str, Any] | None:
    return tiny_configs().get(model_type) if more else {"model_type": model_type}


def _type(name: str, folder: Path) -> str:
    model_type, *tiny = name.split(" ")
    path = folder / f"{name.replace(' ', '-')}.json"
    path.write_text(json.dumps(_config(model_type, "".join(tiny))), encoding="utf-8")
    one, other = (
        document(folder, "audit", str(path), "--context", tokens) for tokens in (LONG, SHORT)
    )
    return audit_line(one, other)


def _plan(name: str, folder: Path) -> str:
    return plan_line(document(folder, "plan", *shlex.split(name)))


def _conversions() -> list[str]:
    """By layer only what is no wrapper: those refuse it, as their language models do."""
    return [
        f"{name} {options}"
        for name in checkpoints()
        for options in (CONVERSIONS[:1] if name.endswith(".image_text") else CONVERSIONS)
    ]


def _conversion(name: str, folder: Path) -> str:
    checkpoint, _, options = name.partition(" ")
    source = folder / checkpoint
    if not source.exists():
        write_checkpoint(checkpoints()[checkpoint], source)
    command = ("convert", str(source), str(folder / "out"), *options.split(), "--dry-run")
    return conversion_line(document(folder, *command))


_SETS: Mapping[str, tuple[Callable[[], list[str]], Callable[[str, Path], str]]] = {
    "catalogue": (_models, _model),
    "types": (_configs, _type),
    "plans": (lambda: list(recorded("plans")), _plan),
    "conversions": (_conversions, _conversion),
}
KINDS = tuple(_SETS)


@cache
def checkpoints() -> Mapping[str, Mapping[str, Any]]:
    """name -> config, element type and tensors."""
    return {row["name"]: row for row in _rows("checkpoints")}


@cache
def tiny_configs() -> Mapping[str, Mapping[str, Any]]:
    """model_type -> a tiny config, of the first checkpoint of that type or of its own."""
    rows = [row["config"] for row in (*checkpoints().values(), *_rows("configs"))]
    return {config["model_type"]: config for config in reversed(rows)}


def _rows(name: str) -> Iterator[Mapping[str, Any]]:
    for line in (GOLDEN / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


def write_checkpoint(row: Mapping[str, Any], folder: Path) -> None:
    """A folder with the config and a file of zeros that takes no space."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in sorted(tensors_of(row)):
        dtype, _, sizes = shape.rpartition(" ")
        sides = [int(size) for size in sizes.split("x") if size]
        dtype = dtype or row["dtype"]
        size = prod(sides) * BYTES[dtype]
        header[name] = {"dtype": dtype, "shape": sides, "data_offsets": [end, end + size]}
        end += size
    encoded = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(row["config"]), encoding="utf-8")
    (folder / "tokenizer.model").touch()  # no plan says that there is none
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)) + encoded)
        file.truncate(8 + len(encoded) + end)


def tensors_of(row: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(name, element type and shape) of each tensor of a checkpoint."""
    return _tensors(row["tensors"])


_NUMBERS = re.compile(r"\{([\d,-]+)\}")


def _tensors(tensors: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """(name, shape) of each: `layers.{0-2,5}` stands for four, an object for names behind it."""
    for key, value in tensors.items():
        for name in _numbered(before + key):
            if isinstance(value, str):
                yield name, value
            else:
                yield from _tensors(value, f"{name}.")


def _numbered(name: str) -> Iterator[str]:
    found = _NUMBERS.search(name)
    if found is None:
        yield name
        return
    for run in found[1].split(","):
        first, _, last = run.partition("-")
        for number in range(int(first), int(last or first) + 1):
            yield from _numbered(f"{name[: found.start()]}{number}{name[found.end() :]}")
