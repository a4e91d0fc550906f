"""docs/security.md: what it says to be tested in a file is tested in a file that is there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")


def test_every_promise_names_tests_that_exist() -> None:
    named = re.findall(r"`(tests/[\w./]+)`", PAGE)
    assert len(named) > 20
    assert not [name for name in named if not (ROOT / name).exists()]
    promises = [line for line in PAGE.splitlines() if line.startswith("| **")]
    assert all("`tests/" in line or "](converting.md)" in line for line in promises)


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([\w./-]+?)(?:#[\w-]+)?\)", PAGE)
    assert links and not [link for link in links if not (ROOT / "docs" / link).exists()]
