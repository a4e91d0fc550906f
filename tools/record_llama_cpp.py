"""Writes tests/plan/engines/llama_cpp.jsonl anew: the buffers that llama.cpp itself prints.

    python tools/record_llama_cpp.py PYTHON           # minutes
    python tools/record_llama_cpp.py PYTHON --check   # exit 1 where it answers otherwise
    python tools/record_llama_cpp.py --differences    # how far plans are off what it answered

PYTHON is that of an environment that has llama-cpp-python, built with its RPC backend, and gguf:

    CMAKE_ARGS="-DGGML_RPC=ON" pip install llama-cpp-python==0.3.36 gguf

The models and the starts are those of the file: a line with `name`, `architecture`, `keys` and
empty `answers` under the names of `runs` is one more.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORT = Path(__file__).resolve().parent.parent / "tests" / "support" / "llama_cpp"
sys.path.insert(0, str(SUPPORT))

from held_buffers import compute_rows  # noqa: E402
from llama_record import RECORD, Json, jobs, line_of, recorded  # noqa: E402


def answered(python: str, head: Json, models: list[Json]) -> Iterator[Json]:
    """The lines of `models` with what the engine answers."""
    worker = [python, str(SUPPORT / "llama_worker.py")]
    asked = "".join(jobs(head, models))
    ran = subprocess.run(worker, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    for model, line in zip(models, ran.stdout.splitlines(), strict=True):
        yield line_of(model, json.loads(line))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", metavar="PYTHON", nargs="?", help="that has llama-cpp-python")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--differences", action="store_true", help="of plans; asks nothing anew")
    given = parser.parse_args()
    if given.differences:
        print("\n".join(compute_rows()))
        return 0
    if given.python is None:
        parser.error("PYTHON is missing")
    head, models = recorded()
    lines = [head, *answered(given.python, head, models)]
    if not given.check:
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        RECORD.write_text(text, encoding="utf-8")
        return 0
    changed = [now["name"] for was, now in zip(models, lines[1:], strict=True) if was != now]
    for name in changed:
        print(f"{name} is not what llama.cpp answers today", file=sys.stderr)
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
