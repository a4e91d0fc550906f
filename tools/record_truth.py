"""Write tests/truth/*.jsonl: what transformers builds and caches for tiny models of every type.

The fast tests hold headcount to these files without torch or transformers; the slow ones record
anew and compare. Configs are random with fixed seeds, so the same version writes the same bytes.

    python tools/record_truth.py                      # write every file: minutes
    python tools/record_truth.py decoders states      # write these
    python tools/record_truth.py --only llama,bert    # show what is recorded of these types today
    python tools/record_truth.py --check              # exit 1 if a file is out of date
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

SUPPORT = Path(__file__).parent.parent / "tests" / "support"
sys.path[:0] = [str(SUPPORT), str(SUPPORT / "truth")]

import transformers  # noqa: E402

from recording import keys, lines  # noqa: E402
from truth_record import ENCODER_TOKENS, FILES, path_of, written  # noqa: E402


def made(name: str, only: set[str] | None = None) -> Iterator[str]:
    """The lines of the file `name` in order, or those of some types or models."""
    for key in keys(name):
        if only is None or key in only:
            yield from map(written, lines(name, key))


def whole(name: str) -> str:
    first = {
        "transformers": transformers.__version__,
        "tool": "tools/record_truth.py",
        "holds": FILES[name],
        "encoder_tokens": ENCODER_TOKENS,
    }
    return "".join((written(first), *made(name)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"of {', '.join(FILES)}")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--only", help="types or models with commas between: print their lines")
    given = parser.parse_args()
    stale = []
    for name in given.files or FILES:
        if given.only:
            sys.stdout.writelines(made(name, set(given.only.split(","))))
        elif not given.check:
            path_of(name).write_text(whole(name), encoding="utf-8")
        elif path_of(name).read_text(encoding="utf-8") != whole(name):
            stale.append(name)
    for name in stale:
        print(f"{name}.jsonl is not what transformers builds today", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
