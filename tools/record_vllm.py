"""Write tests/plan/engines/vllm.jsonl: what vLLM's own code makes of every config of the catalogue
and of every class that it has, in blocks, tokens and concurrency.

The fast tests hold plans against it. vLLM is asked by another interpreter, in an environment that
has its CPU build; `tests/support/judge/vllm_environment.py` makes one.

    python tools/record_vllm.py --python PYTHON            # write the file: a quarter of an hour
    python tools/record_vllm.py --python PYTHON --check    # exit 1 if vLLM says other things today
    python tools/record_vllm.py --python PYTHON NAME...    # ask of some models, write their lines
    python tools/record_vllm.py --differences              # counts, and where plans differ
"""

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support" / "judge"))

from vllm_cases import RECORD, SETTINGS, Refusal, differences, header, recorded
from vllm_environment import asked


def show_differences() -> int:
    """Each of them, and how many answers of each setting are equal."""
    version = header()["vllm"]
    found = {case.id: differences(case, version) for case in recorded()}
    for name, texts in found.items():
        for number, text in texts.items():
            print(f"{name} [{number}] {text}")
    print(f"vLLM {version}, as on {header()['device']}: models, equal, different, refused by vLLM")
    for number, setting in enumerate(SETTINGS):
        answers = [case.answers[number] for case in recorded()]
        refused = sum(isinstance(answer, Refusal) for answer in answers)
        different = sum(number in texts for texts in found.values())
        equal = len(answers) - refused - different
        print(f"{len(answers):4} {equal:4} {different:4} {refused:4}  {json.dumps(setting)}")
    return 1 if any(found.values()) else 0


def show_changes(recorded_text: str, text: str) -> int:
    """Each line of today's that is another."""
    old = set(recorded_text.splitlines())
    changed = [line for line in text.splitlines() if line not in old]
    for line in changed:
        print(line)
    return 1 if changed or recorded_text != text else 0


def renewed(lines: Iterable[str]) -> str:
    """The record with `lines` in place of those of the same models; new ones come last."""
    new = {json.loads(line)["model"]: line for line in lines}
    old = RECORD.read_text(encoding="utf-8").splitlines(keepends=True)
    kept = [new.pop(json.loads(line)["model"], line) for line in old[1:]]
    return "".join((old[0], *kept, *new.values()))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="NAME")
    parser.add_argument("--python", type=Path, help="of the environment that has vLLM")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--differences", action="store_true", help="of plans from the record")
    given = parser.parse_args()
    if given.differences:
        return show_differences()
    if given.python is None:
        parser.error("--python is needed")
    lines = asked(given.python, set(given.models) or None)
    text = renewed(lines) if given.models else "".join(lines)
    if given.check:
        return show_changes(RECORD.read_text(encoding="utf-8"), text)
    RECORD.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
