"""Writes down the words that engines' own command lines know, by version, from their sources.

What launch commands of plans say is held against them (tests/plan/test_launch.py): options,
variables, and the choices of a cache's type and of quantisation. A source is a folder of the
engine's release, as its package or repository unpacks; one that is given is merged in.

python tools/engine_words.py vllm 0.32.0=FOLDER [0.31.0=FOLDER ...]
python tools/engine_words.py sglang 0.5.23=FOLDER
python tools/engine_words.py llama.cpp b11434=FOLDER
python tools/engine_words.py tensorrt-llm 4c05a748=FOLDER 00209af1=FOLDER  # commits
"""

import ast
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

RECORD = Path(__file__).resolve().parent.parent / "tests" / "plan" / "engine_words.jsonl"
_FLAG = re.compile(r"""["'](--?[a-zA-Z][a-zA-Z0-9_-]*)["']""")


class Words(NamedTuple):
    """The files of a release that say them, and how they are read of its folder."""

    files: str
    read: Callable[[Path], Iterable[str]]


def of_vllm(folder: Path) -> Iterator[str]:
    for path in (
        folder / "vllm/engine/arg_utils.py",
        *folder.glob("vllm/entrypoints/**/cli_args.py"),
    ):
        yield from _FLAG.findall(path.read_text("utf-8"))
    yield from re.findall(r'"(VLLM_[A-Z0-9_]+)"', (folder / "vllm/envs.py").read_text("utf-8"))
    configs = [
        p for p in (folder / "vllm/config.py", folder / "vllm/config/cache.py") if p.exists()
    ]
    yield from _choices(configs[0], "CacheDType", "kv-cache-dtype")
    methods = folder / "vllm/model_executor/layers/quantization/__init__.py"
    yield from _choices(methods, "QuantizationMethods", "quantization")
    online = folder / "vllm/config/quantization.py"
    if online.exists():  # shorthands that are no methods of checkpoints
        found = re.findall(r'^    "([a-z0-9_]+)": QuantizationConfigArgs', online.read_text(), re.M)
        yield from (f"quantization={name}" for name in found)


def of_sglang(folder: Path) -> Iterator[str]:
    """Options are arguments of a parser, or since 0.5.16 fields of a class."""
    root = folder / "sglang/srt"
    arguments, fields = root / "server_args.py", root / "arg_groups/fields"
    said = "".join(path.read_text("utf-8") for path in (arguments, *sorted(fields.glob("*.py"))))
    yield from _FLAG.findall(said)
    yield from (f"--{n.replace('_', '-')}" for n in re.findall(r"^    ([a-z]\w+): A\[", said, re.M))
    for path in root.rglob("*.py"):
        yield from re.findall(r"\b(SGLANG_[A-Z0-9_]+)\b", path.read_text("utf-8"))
    caches = re.search(r'choices=\[\s*("auto",\s*"fp8_e5m2"[^\]]*)\]', said)
    assert caches, "no choices of --kv-cache-dtype"
    yield from (f"kv-cache-dtype={name}" for name in re.findall(r'"([^"]+)"', caches[1]))
    choices = root / "arg_groups/choices.py"
    methods = list(
        _choices(choices if choices.exists() else arguments, "QUANTIZATION_CHOICES", "quantization")
    )
    listed = re.search(r'"--quantization",.*?choices=\[(.*?)\]', said, re.S)
    own = re.findall(r'"([^"]+)"', listed[1]) if listed and not methods else []
    yield from (*methods, *(f"quantization={name}" for name in own))


def of_llama_cpp(folder: Path) -> Iterator[str]:
    text = (folder / "common/arg.cpp").read_text("utf-8")
    for group in re.findall(r'\{\s*("-[^{}]*")\s*\}', text):
        yield from _FLAG.findall(group)
    names = re.search(r"kv_cache_types = \{(.*?)\};", text, re.S)
    assert names, "no types of caches"
    kinds = re.findall(r"GGML_TYPE_([A-Z0-9_]+)", names[1])
    yield from (f"cache-type={kind.lower()}" for kind in kinds)


def of_tensorrt_llm(folder: Path) -> Iterator[str]:
    """Of `trtllm-serve serve` alone, of the commands that the file has."""
    text = (folder / "tensorrt_llm/commands/serve.py").read_text("utf-8")
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and node.name == "serve":
            for decorator in node.decorator_list:
                yield from _FLAG.findall(ast.unparse(decorator))


def _choices(path: Path, name: str, option: str) -> Iterator[str]:
    """The strings of a list, or of a Literal."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        targets = node.targets if isinstance(node, ast.Assign) else []
        if any(isinstance(target, ast.Name) and target.id == name for target in targets):
            for item in ast.walk(node):
                if isinstance(item, ast.Constant) and isinstance(item.value, str):
                    yield f"{option}={item.value}"


ENGINES = {
    "vllm": Words(
        "vllm/engine/arg_utils.py, entrypoints/**/cli_args.py, envs.py, config/cache.py,"
        " config/quantization.py, model_executor/layers/quantization",
        of_vllm,
    ),
    "sglang": Words(
        "sglang/srt/server_args.py, arg_groups/fields, arg_groups/choices.py", of_sglang
    ),
    "llama.cpp": Words("common/arg.cpp", of_llama_cpp),
    "tensorrt-llm": Words("tensorrt_llm/commands/serve.py", of_tensorrt_llm),
}


def _order(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def spans(releases: dict[str, frozenset[str]]) -> dict[str, list[str] | None]:
    """Of each word the `releases` that know it; None for all."""
    versions = sorted(releases, key=_order)
    found = {}
    for word in sorted(set().union(*releases.values())):
        known = [version for version in versions if word in releases[version]]
        found[word] = _as_span(known, versions) if len(known) < len(versions) else None
    return found


def _as_span(known: list[str], versions: list[str]) -> list[str]:
    """The first and the last where those between know it, too; else all."""
    first, last = versions.index(known[0]), versions.index(known[-1])
    return [known[0], known[-1]] if known == versions[first : last + 1] else ["", *known]


def main(engine: str, *named: str) -> None:
    folders = dict(name.split("=", 1) for name in named)
    words = ENGINES[engine]
    releases = {v: frozenset(words.read(Path(folder))) for v, folder in folders.items()}
    line = {
        "engine": engine,
        "source": words.files,
        "versions": sorted(releases, key=_order),
        "words": spans(releases),
    }
    kept = RECORD.read_text().splitlines() if RECORD.exists() else []
    others = [text for text in kept if json.loads(text)["engine"] != engine]
    lines = sorted([*others, json.dumps(line, separators=(",", ":"))])
    RECORD.write_text("".join(f"{text}\n" for text in lines))


if __name__ == "__main__":
    main(*sys.argv[1:])
