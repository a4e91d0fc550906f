"""The table of limits: the only one, documented, and used."""

import re
from functools import cache
from pathlib import Path

import pytest

from headcount.model import limits

ROOT = Path(__file__).parents[2]
ROOMS = (
    *("arch", "audit", "commands", "convert", "library", "model", "plan", "report", "running"),
    "sources",
)
# What a bound is called, wherever it stands.
BOUND = re.compile(
    r"^(?:_?[A-Z_]+, )*_?(?:[A-Z]+_)*"
    r"(?:MAX|MOST|LIMIT|LONGEST|SHOWN|KEPT|SECONDS|AT_ONCE|TIMEOUT)(?:_[A-Z]+)*\b"
    r".*=.*\d",
    re.MULTILINE,
)
# Not of a stranger's input: how much is measured, computed with, looked for or drawn.
OTHERS = frozenset(
    {
        *("convert/calibrate/calibration_text.py", "convert/homes/native_heads.py"),
        *("audit/diff.py", "audit/topics/subject.py"),
        *("convert/merge/costs.py", "convert/budget/search.py"),
        *("plan/changes.py", "plan/curves.py", "plan/report/charts.py", "plan/report/tables.py"),
        *("plan/report/overview.py", "plan/hardware/search.py"),
        *("plan/options/speculation.py", "plan/engines/vllm/added/adapters.py"),  # vLLM's own
        *("plan/reconcile/figures.py", "plan/reconcile/one_change.py"),
        *("running/built/compare_caches.py", "sources/ranged_file.py"),
    }
)


@cache
def sources() -> dict[str, str]:
    paths = (path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def test_no_other_file_has_limits_of_its_own() -> None:
    found = {name: BOUND.findall(text) for name, text in sources().items()}
    assert found["model/limits.py"]
    assert {name for name, lines in found.items() if lines} - {"model/limits.py"} <= OTHERS
    assert not {name for name in OTHERS if not found[name]}, "no longer bounded: off the list"


@pytest.mark.parametrize("name", limits.table())
def test_each_limit_is_used_and_says_why(name: str) -> None:
    limit = limits.table()[name]
    assert limit.reason
    users = [
        file
        for file, text in sources().items()
        if file != "model/limits.py" and re.search(rf"\blimits\.{name}\b", text)
    ]
    assert users, "nothing looks at it"


def test_a_refusal_says_what_was_found_and_what_to_do() -> None:
    limit = limits.Limit(1000, "bytes of header", "why", advice="save it in two")
    said = "a.json: 2,000 bytes of header; no more than 1,000 are read: save it in two"
    assert limit.refusal("a.json", 2000) == said
    said = "a.json: no more than 1,000 bytes of header are read: save it in two"
    assert limit.refusal(Path("a.json")) == said


def test_the_page_is_the_table() -> None:
    """docs/limits.md has a row for each limit, with what stands here."""
    page = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {limit.most:,} {limit.unit} | {limit.beyond} | {limit.reason} |"
        for name, limit in limits.table().items()
    ]
