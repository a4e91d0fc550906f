"""Writes tests/convert/gguf/llama_cpp.jsonl anew: what llama.cpp makes of files as we write them.

    python tools/record_gguf.py PYTHON SOURCES           # minutes
    python tools/record_gguf.py PYTHON SOURCES --check   # exit 1 where it is not as recorded

PYTHON is that of an environment with llama-cpp-python (`pip install llama-cpp-python==0.3.36`),
SOURCES the folder vendor/llama.cpp of that package's sdist. Each model of
tests/support/llama_cpp/gguf_models.py is written by `convert --format gguf`, loaded and run by
llama.cpp, and written by llama.cpp's own converter. A line has a digest of each of our tensors, the
key-values, how far llama.cpp's logits are from transformers' (`furthest`, of all tokens), those
behind the last token, and what the other converter writes otherwise (`converter`).
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

SUPPORT = Path(__file__).resolve().parent.parent / "tests" / "support" / "llama_cpp"
sys.path.insert(0, str(SUPPORT))

from gguf_models import GGUF_MODELS, TOKENS, save  # noqa: E402
from gguf_record import (  # noqa: E402
    RECORD,
    WrittenFile,
    ask_llama,
    converted,
    logits_of,
    read_file,
)


def lines(folder: Path, python: str, sources: Path) -> Iterator[str]:
    """The record, made in a `folder` that is empty before."""
    yield json.dumps({"llama-cpp-python": "0.3.36", "tokens": len(TOKENS)})
    names = {name: folder / str(index) for index, name in enumerate(GGUF_MODELS)}
    wanted = {name: logits_of(save(name, path)) for name, path in names.items()}
    ours = {name: converted(path, folder / f"{path.name}-ours") for name, path in names.items()}
    asked = [{"path": str(path), "tokens": TOKENS} for path in ours.values()]
    found = dict(zip(names, ask_llama(python, asked), strict=True))
    failed = dict(zip(names, _other_files(names, sources), strict=True))
    for name, path in names.items():
        pairs = zip(wanted[name], found[name], strict=True)
        furthest = max(abs(a - b) for one, two in pairs for a, b in zip(one, two, strict=True))
        written = read_file(ours[name])
        line = {
            "name": name,
            "tensors": written.tensors,
            "keys": written.keys,
            "furthest": float(f"{furthest:.2g}"),
            "last": [float(f"{value:.6g}") for value in found[name][-1][:32]],
            "converter": {"fails": failed[name]}
            if failed[name]
            else _differences(written, read_file(path / "other.gguf")),
        }
        print(f"{furthest:.2g}  {name}", file=sys.stderr)
        yield json.dumps(line)


def _other_files(names: Mapping[str, Path], sources: Path) -> list[str]:
    """Lets llama.cpp's converter write each model; what it says where it fails."""
    for name, path in names.items():
        config = path / "config.json"
        said = {**json.loads(config.read_text()), **GGUF_MODELS[name].published}
        config.write_text(json.dumps(said))
        vocabulary = {"vocab": {str(i): i for i in range(said["vocab_size"])}}
        tokenizer = {"model": vocabulary, "added_tokens": []}
        (path / "tokenizer.json").write_text(json.dumps(tokenizer))
    worker = [sys.executable, str(SUPPORT / "converter_worker.py"), str(sources)]
    asked = [*worker, *map(str, names.values())]
    ran = subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=True)
    return ran.stdout.splitlines()


def _differences(ours: WrittenFile, theirs: WrittenFile) -> dict[str, Any]:
    """What the other file has otherwise: tensors by their names, keys with its values."""
    return {
        "tensors": sorted(
            one
            for one in {*ours.tensors, *theirs.tensors}
            if ours.tensors.get(one) != theirs.tensors.get(one)
        ),
        "keys": {
            key: value
            for key, value in sorted(theirs.keys.items())
            if ours.keys.get(key) != value and not key.startswith("general.")
        },
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", metavar="PYTHON", help="that has llama-cpp-python")
    parser.add_argument("sources", metavar="SOURCES", type=Path, help="of llama.cpp")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    given = parser.parse_args()
    with TemporaryDirectory() as folder:
        made = lines(Path(folder), given.python, given.sources)
        content = "".join(f"{line}\n" for line in made)
    if given.check:
        same = RECORD.read_text(encoding="utf-8") == content
        print(RECORD, "is as answered" if same else "is not as answered")
        return 0 if same else 1
    RECORD.write_text(content, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
