"""Write plan/engines/vllm/added/lora_classes.jsonl: what vLLM's classes let adapters change.

Read from the sources of several releases, whose code is parsed and never run: the registry of
models, and in each class, or the classes that it is made from, `SupportsLoRA`, `embedding_modules`,
`packed_modules_mapping` and `is_3d_moe_weight`. The first line has the releases, each other line a
class: since which of them it takes adapters, since which those of embedding and output head (null:
never), which of its matrices files hold as one, and whether files hold gate and up of all experts
as one:

    {"class":"Phi3ForCausalLM","since":"0.8.5","embeddings":"0.8.5","fused":["qkv_proj"],"3d":false}

    python tools/lora_classes.py FOLDER...          # each holds the vllm/ of the release it names
    python tools/lora_classes.py --check FOLDER...  # exit 1 if the file is not what they say
"""

import argparse
import ast
import json
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

_ROOM = Path(__file__).parent.parent / "plan" / "engines" / "vllm" / "added"
TARGET = _ROOM / "lora_classes.jsonl"
_DICTS = ("_TEXT_GENERATION_MODELS", "_MULTIMODAL_MODELS")
_FUSED = ("qkv_proj", "gate_up_proj")


class Found(NamedTuple):
    """Of one class in one release."""

    embeddings: bool
    fused: tuple[str, ...]
    grouped: bool


class Release(NamedTuple):
    """`models` is the folder of its model files."""

    version: str
    models: Path

    def classes(self) -> Iterator[tuple[str, Found]]:
        """Those of the registry that take adapters."""
        for name, (module, own) in sorted(_registered(self.models / "registry.py").items()):
            path = _file(self.models, module)
            if path is not None and (values := _values(self.models, path, own)).get("SupportsLoRA"):
                packed = values.get("packed_modules_mapping") or {}
                yield (
                    name,
                    Found(
                        embeddings=bool(values.get("embedding_modules")),
                        fused=tuple(key for key in _FUSED if len(packed.get(key, ())) == 1),
                        grouped=values.get("is_3d_moe_weight") is True,
                    ),
                )


def _file(models: Path, module: str) -> Path | None:
    """Of a module named as the registry does: beside it, or from the package's root."""
    beside = models / f"{module}.py"
    if beside.exists():
        return beside
    parts = module.split(".")
    rooted = models.parent.parent.parent.joinpath(*parts)
    return next(
        (p for p in (rooted.with_suffix(".py"), rooted / "__init__.py") if p.exists()), None
    )


def _registered(registry: Path) -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = {}
    for node in ast.parse(registry.read_text()).body:
        if not isinstance(node, (ast.Assign, ast.AnnAssign)):
            continue
        target, made = node.targets[0] if isinstance(node, ast.Assign) else node.target, node.value
        if isinstance(target, ast.Name) and target.id in _DICTS and isinstance(made, ast.Dict):
            for key, value in zip(made.keys, made.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                    module, own = (part.value for part in value.elts[:2])  # type: ignore[attr-defined]
                    found[str(key.value)] = (module, own)
    return found


@lru_cache(maxsize=4096)
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _values(models: Path, path: Path, name: str, depth: int = 0) -> dict[str, Any]:
    """Attributes of a class, its own over those of the classes that it is made from, the first of
    these over the others."""
    tree = _parsed(path)
    own = next((n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name), None)
    if own is None or depth > 8:
        return {}
    values: dict[str, Any] = {}
    for base in reversed(own.bases):
        if isinstance(base, ast.Name) and base.id == "SupportsLoRA":
            values["SupportsLoRA"] = True
        elif isinstance(base, ast.Name):
            where, called = _imported(models, path, tree, base.id)
            values |= _values(models, where, called, depth + 1)
    for node in own.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and getattr(node, "value", None) is not None:
            try:
                values[target.id] = ast.literal_eval(node.value)  # type: ignore[attr-defined]
            except ValueError:
                continue
    return values


def _imported(models: Path, path: Path, tree: ast.Module, name: str) -> tuple[Path, str]:
    """The file in which a base class stands, and what it is called there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    last = node.module.removeprefix("vllm.model_executor.models.")
                    found = path.parent / f"{last}.py" if node.level else _file(models, last)
                    if found is not None and found.exists():
                        return found, alias.name
    return path, name


def rows(releases: list[Release]) -> Iterator[dict[str, Any]]:
    """A line for each class, of what holds in the newest release that has it."""
    seen: dict[str, list[tuple[str, Found]]] = {}
    for release in releases:
        for name, found in release.classes():
            seen.setdefault(name, []).append((release.version, found))
    for name, history in sorted(seen.items()):
        newest = history[-1][1]
        yield {
            "class": name,
            "since": history[0][0],
            "embeddings": _since(history) if newest.embeddings else None,
            "fused": list(newest.fused),
            "3d": newest.grouped,
        }


def _since(history: list[tuple[str, Found]]) -> str:
    """The release from which on embeddings are among what adapters change."""
    since = history[-1][0]
    for version, found in reversed(history):
        if not found.embeddings:
            break
        since = version
    return since


def text_of(releases: list[Release]) -> str:
    lines = [{"versions": {"vllm": [release.version for release in releases]}}, *rows(releases)]
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--check", action="store_true")
    given = parser.parse_args()
    releases = [Release(f.name, f / "vllm" / "model_executor" / "models") for f in given.folders]
    releases.sort(key=lambda release: [int(part) for part in release.version.split(".")])
    text = text_of(releases)
    if given.check:
        return int(TARGET.read_text() != text)
    TARGET.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
