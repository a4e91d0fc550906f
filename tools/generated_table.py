"""What the scripts that make a table of arch/generated share: to write it, or to compare it."""

import argparse
import sys
from pathlib import Path


def write_or_compare(text: str, target: Path, *, said: str, about: str) -> int:
    """Writes `text`; with --check compares it instead. The exit status: 1 where `target` is not
    what `said`, a library and its version, says. The first line of `about` is the help."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="compare, and write nothing")
    if not parser.parse_args().check:
        target.write_text(text)
        return 0
    if target.read_text() == text:
        return 0
    print(f"{target} is not what {said} says", file=sys.stderr)
    return 1
