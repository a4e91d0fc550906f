"""Writes tests/heads/transformer_lens.jsonl anew: what TransformerLens scores heads.

    python tools/record_transformer_lens.py PYTHON           # a minute
    python tools/record_transformer_lens.py PYTHON --check   # exit 1 where it answers otherwise

PYTHON is that of an environment that has transformer-lens, and the release of transformers that
tests/truth was recorded with. Every causal type of tests/truth is asked of; those that
TransformerLens does not read are left out.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

TESTS = Path(__file__).resolve().parent.parent / "tests"
RECORD = TESTS / "heads" / "transformer_lens.jsonl"
WORKER = TESTS / "support" / "heads" / "ask_transformer_lens.py"
VERSIONS = (
    "from importlib.metadata import version as v;"
    "print(v('transformer-lens'), v('transformers'), v('torch'))"
)

Line = dict[str, Any]


ROUNDS = 4  # configs of a type that are tried, until TransformerLens reads one


def configs() -> dict[str, list[Line]]:
    """The configs of every causal type in tests/truth, as transformers saves them."""
    found: dict[str, list[Line]] = {}
    for line in (TESTS / "truth" / "decoders.jsonl").read_text("utf-8").splitlines()[1:]:
        case = json.loads(line)
        if case["written"] == "saved":
            found.setdefault(case["model_type"], []).append(case["config"])
    return found


def answered(python: str) -> Iterator[Line]:
    """For each type the first config that TransformerLens reads, with its scores."""
    left = configs()
    for nth in range(ROUNDS):
        asked = {name: own[nth] for name, own in left.items() if nth < len(own)}
        for name, answer in zip(asked, ask(python, asked.values()), strict=True):
            if "scores" in answer:
                del left[name]
                yield {"model_type": name, "config": asked[name], **answer}
            else:
                print(f"{name}: {answer['error']}", file=sys.stderr)


def ask(python: str, asked: Iterable[Line]) -> Iterator[Line]:
    text = "".join(json.dumps(config) + "\n" for config in asked)
    worker, kept, lost = [python, str(WORKER)], subprocess.PIPE, subprocess.DEVNULL
    ran = subprocess.run(worker, input=text, stdout=kept, stderr=lost, text=True, check=True)
    return map(json.loads, ran.stdout.splitlines())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("python", metavar="PYTHON", help="that has transformer-lens")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    given = parser.parse_args()
    ran = subprocess.run([given.python, "-c", VERSIONS], stdout=subprocess.PIPE, text=True)
    names = ("transformer-lens", "transformers", "torch")
    head: Line = dict(zip(names, ran.stdout.split(), strict=True))
    head |= {"tool": "tools/record_transformer_lens.py", "holds": "scores of head_detector, mul"}
    found = sorted(answered(given.python), key=lambda line: str(line["model_type"]))
    lines = [head, *found]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    if given.check:
        return int(text != RECORD.read_text("utf-8"))
    RECORD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
