"""Write arch/generated/rounded_widths.jsonl: whose heads are rounded down in a width they do not
divide.

Where a config gives no head_dim, a class divides hidden_size by the heads. Some refuse what is left
over, some fail in the first forward, the others round down. The script builds and runs tiny models
of every type, one line a model_type:

    {"model_type": "qwen2", "rounds": true}

    python tools/rounded_widths.py            # write the file: minutes
    python tools/rounded_widths.py --check    # exit 1 if the file is not what transformers does
    python tools/rounded_widths.py llama gpt2 # print the lines of these types
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
sys.path[:0] = [str(SUPPORT), str(SUPPORT / "truth")]

import transformers  # noqa: E402

from undivided import jobs, undivided  # noqa: E402

TARGET = Path(__file__).parent.parent / "arch" / "generated" / "rounded_widths.jsonl"


def lines(types: Iterable[str]) -> list[str]:
    """Of those types that run at all with a width that their heads divide."""
    found = ((name, undivided(name, jobs()[name])) for name in types)
    return [
        _line({"model_type": name, "rounds": one.model is not None})
        for name, one in found
        if one is not None
    ]


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, separators=(",", ":")) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("types", nargs="*", metavar="TYPE", help="print the lines of these types")
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    given = parser.parse_args()
    if given.types:
        sys.stdout.writelines(lines(given.types))
        return 0
    first = _line({"versions": {"transformers": transformers.__version__}})
    text = "".join((first, *lines(sorted(jobs()))))
    if not given.check:
        TARGET.write_text(text)
        return 0
    if TARGET.read_text() == text:
        return 0
    print(f"{TARGET} is not what transformers {transformers.__version__} does", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
