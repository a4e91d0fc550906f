"""tools/readme_blocks.py, run as `make readme` runs it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "readme_blocks.py"


def block(command: str, body: str, kind: str = "text") -> str:
    return f"Before.\n\n<!-- run: {command} -->\n```{kind}\n{body}```\n\nAfter.\n"


def run(mode: str, file: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, TOOL, mode, file], capture_output=True, text=True)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "page.md"


def test_check_accepts_the_real_output(page: Path) -> None:
    page.write_text(block("echo one; echo two", "one\ntwo\n"))
    done = run("--check", page)
    assert (done.returncode, done.stdout) == (0, f"{page}: up to date, blocks checked: 1\n")


def test_check_shows_what_differs_and_leaves_the_file_alone(page: Path) -> None:
    text = block("echo new", "old\n")
    page.write_text(text)
    done = run("--check", page)
    assert done.returncode == 1
    assert "-old\n+new\n" in done.stdout
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("kind", "body"), [("text", "new\n"), ("console", "$ echo new\nnew\n")], ids=["text", "console"]
)
def test_write_replaces_only_the_body_of_the_block(page: Path, kind: str, body: str) -> None:
    page.write_text(block("echo new", "old\nolder\n", kind) + block("echo b", "", "text"))
    assert run("--write", page).returncode == 0
    assert page.read_text() == block("echo new", body, kind) + block("echo b", "b\n", "text")
    assert run("--check", page).returncode == 0


def test_commands_share_a_folder_and_do_not_write_beside_the_file(page: Path) -> None:
    (page.parent / "input.txt").write_text("given\n")
    text = block("cp input.txt made.txt; echo", "\n") + block("cat made.txt", "given\n")
    page.write_text(text)
    assert run("--check", page).returncode == 0
    assert sorted(path.name for path in page.parent.iterdir()) == ["input.txt", "page.md"]


def test_commands_of_this_python_come_first_on_the_path(page: Path) -> None:
    page.write_text(block("command -v python", f"{Path(sys.executable).parent / 'python'}\n"))
    assert run("--check", page).returncode == 0


def test_unmarked_blocks_are_left_alone(page: Path) -> None:
    text = block("echo a", "a\n") + "```text\nby hand\n```\n"
    page.write_text(text)
    assert run("--write", page).returncode == 0
    assert page.read_text() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (block("echo lost >&2; exit 3", ""), "failed with exit code 3:\nlost"),
        ("<!-- run: echo a -->\n\nProse.\n\n```text\na\n```\n", "without a ```text"),
        ("Prose.\n", "nothing to check"),
    ],
    ids=["failing command", "marker without block", "no marker"],
)
def test_what_cannot_be_checked_fails(page: Path, text: str, message: str) -> None:
    page.write_text(text)
    for mode in ("--check", "--write"):
        done = run(mode, page)
        assert done.returncode == 1
        assert message in done.stderr
        assert page.read_text() == text


def test_links_between_the_documents_lead_somewhere() -> None:
    root = Path(__file__).parent.parent
    pages = [*root.glob("*.md"), *(root / "docs").glob("*.md")]
    links = [
        (page, target.partition("#")[0])
        for page in pages
        for target in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8"))
        if "://" not in target
    ]
    assert len(links) > 5
    assert [(p.name, t) for p, t in links if t and not (p.parent / t).exists()] == []


ROOT = TOOL.parents[1]


def test_the_index_and_the_site_name_every_page() -> None:
    pages = {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    assert set(re.findall(r"\]\(([a-z-]+\.md)\)", index)) == pages
    site = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert set(re.findall(r"- ([a-z-]+\.md)$", site, re.MULTILINE)) == pages | {"index.md"}


def test_the_readme_quotes_the_table_of_other_tools() -> None:
    """Names and results are those of the table that docs/engines.md has from its bench."""
    mark = "<!-- quoted from docs/engines.md: right -->\n"
    quoted = (ROOT / "README.md").read_text("utf-8").split(mark)[1].split("\n\n")[0].splitlines()
    lines = (ROOT / "docs" / "engines.md").read_text("utf-8").splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("| right |"))
    head = next(line for line in reversed(lines[:at]) if line.startswith("| model | keeps"))
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in (head, lines[at])]
    names, right = (row[3:] for row in cells)
    assert [[c.strip() for c in line.strip("|").split("|")] for line in (quoted[0], quoted[2])] == [
        names,
        right,
    ]
