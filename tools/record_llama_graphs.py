"""Writes plan/engines/llama_cpp/graphs.jsonl anew: the graphs that llama.cpp makes.

    python tools/record_llama_graphs.py PYTHON            # minutes
    python tools/record_llama_graphs.py PYTHON --check    # exit 1 where it makes others

PYTHON is that of an environment that has llama-cpp-python and gguf (tools/record_llama_cpp.py). It
is asked of the tiny models of tests/plan/engines/llama_cpp.jsonl, each in starts that differ in one
size (tests/support/llama_cpp/graph_starts.py). Those with the sizes of real ones are not asked for:
the buffers that are recorded of them judge what was learnt here.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORT = ROOT / "tests" / "support" / "llama_cpp"
TARGET = ROOT / "plan" / "engines" / "llama_cpp" / "graphs.jsonl"
# Its graph stands in for those of architectures that llama.cpp has and that were not asked for.
STAND_IN = "llama"
sys.path.insert(0, str(SUPPORT))

from graph_record import Recorded, written  # noqa: E402
from graph_starts import starts  # noqa: E402
from headcount.model.errors import HeadcountError  # noqa: E402
from llama_record import Json, metadata, recorded  # noqa: E402
from planned_buffers import window_of  # noqa: E402


def lines(python: str) -> Iterator[str]:
    """The content of the file."""
    head, models = recorded()
    made = {"llama-cpp-python": head["llama-cpp-python"], "tool": f"tools/{Path(__file__).name}"}
    yield json.dumps({**made, "stand_in": STAND_IN})
    small = [model for model in models if not model.get("large")]
    graphs = (graph for model in small for graph in graphs_of(python, model))
    yield from written(graphs)


def graphs_of(python: str, model: Json) -> Iterator[Json]:
    """Of one model, with its architecture; sizes that nothing explains are said on stderr."""
    asked = "".join(f"{json.dumps(job)}\n" for job in jobs(model))
    worker = [python, str(SUPPORT / "llama_graph_worker.py")]
    ran = subprocess.run(worker, input=asked, stdout=subprocess.PIPE, text=True, check=True)
    found = Recorded(map(json.loads, ran.stdout.splitlines()))
    for line in found.lines():
        yield {"architecture": model["architecture"], **line}
    for tensor in found.missing:
        print(f"{model['name']}: {tensor} is as large as no product of sizes", file=sys.stderr)


def jobs(model: Json) -> Iterator[Json]:
    """What the worker is asked of a model; what is none by the plan's own reading is left out."""
    longest = window_of(metadata(model), model["name"])
    for name, keys, run in starts(model["architecture"], model["keys"], longest):
        about = metadata({**model, "keys": keys})
        try:
            window = window_of(about, name)
        except HeadcountError:
            continue
        yield {"name": name, "metadata": about, "keys": keys, "window": window, "run": run}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", metavar="PYTHON", help="that has llama-cpp-python")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    given = parser.parse_args()
    text = "".join(f"{line}\n" for line in lines(given.python))
    if not given.check:
        TARGET.write_text(text, encoding="utf-8")
        return 0
    if TARGET.read_text(encoding="utf-8") == text:
        return 0
    print(f"{TARGET.name} is not what llama.cpp makes today", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
