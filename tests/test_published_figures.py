"""Figures in README.md and docs/: none without its script and what it is a figure of.

Blocks that `bench/` prints say model, text, tokens, seed, versions and commands. A loss that stands
elsewhere stands in such a block as well.
"""

import re
from pathlib import Path

import click
import pytest

from headcount.cli import main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(
    r"^<!-- made by bench/(?P<script>[\w.]+) -->\n(?P<header>.*)\n\n(?P<body>.*?)"
    r"^<!-- end of bench/(?P=script) -->$",
    re.MULTILINE | re.DOTALL,
)
_LOSS = re.compile(r"(?<![\w.])[+-]\d+\.\d{3}\b")  # nats a token that something adds
_PARTS = (
    r"^Model: [\w.-]+ \(\w+, [\d.]+ M parameters, \d+ layers, \d+ query and \d+ K/V heads of ",
    r" Text: [^.]+\S* .*\(sha256 [0-9a-f]{12}\)",
    r" Tokens: [\d,]+ scored, windows of \d+ by \d+, (each after BOS|without BOS);",
    r" Seed: \d+\.",
    r" Measured: \d{4}-\d\d-\d\d, headcount \S+, torch \S+, transformers \S+, \w+\.",
)
_FIGURES = re.compile(r"\d\.\d s\b|\de-\d|[+-]\d+(?:\.\d+)? ?%")  # seconds, differences, errors
_SOURCE = re.compile(r"\b(bench|tools|tests)/[\w/]+\.py\b|<!-- run: |<!-- quoted from ")


def blocks() -> list[tuple[Path, re.Match[str]]]:
    return [(page, match) for page in PAGES for match in _BLOCK.finditer(page.read_text("utf-8"))]


def tables(text: str) -> list[tuple[int, str]]:
    """Of every Markdown table, where it begins and its text."""
    found = re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [(match.start(), match[0]) for match in found]


def rows(body: str) -> list[list[str]]:
    lines = [line for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_every_mark_of_a_block_has_its_other() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        marks = len(re.findall(r"<!-- (?:made by|end of) bench/", text))
        assert marks == 2 * len(_BLOCK.findall(text)), page.name
    assert len(blocks()) >= 5


@pytest.mark.parametrize(("page", "match"), blocks(), ids=lambda one: getattr(one, "name", ""))
def test_a_block_says_what_its_figures_are_figures_of(page: Path, match: re.Match[str]) -> None:
    assert (ROOT / "bench" / match["script"]).is_file()
    assert [part for part in _PARTS if not re.search(part, match["header"])] == []
    commands = re.findall(r"^    (headcount .*)$", match["body"], re.MULTILINE)
    assert commands
    for command in commands:
        check_command(command.split()[1:])


def check_command(words: list[str]) -> None:
    """It names a command and options that there are, and no place of a machine."""
    group = main
    command = group.get_command(click.Context(group), words[0])
    assert command is not None, words[0]
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    assert {word for word in words if word.startswith("--")} <= options
    assert not [word for word in words if word.startswith(("/", "~"))]


def test_a_loss_stands_in_a_block_or_is_quoted_from_one() -> None:
    printed = {loss for _, match in blocks() for loss in _LOSS.findall(match["body"])}
    for page in PAGES:
        outside = _BLOCK.sub("", page.read_text("utf-8"))
        assert [loss for loss in _LOSS.findall(outside) if loss not in printed] == [], page.name


def test_a_table_of_figures_names_what_prints_them() -> None:
    """In the block it lies in, or in the lines before it, back to the heading."""
    for page in PAGES:
        text = page.read_text("utf-8")
        for start, table in tables(text):
            if not _FIGURES.search(re.sub(r"\[[^\]]*\]\([^)]*\)|`[^`]*`", "", table)):
                continue
            section = text[text.rfind("\n#", 0, start) + 1 : start + len(table)]
            assert _SOURCE.search(section), (page.name, table.splitlines()[0])


def test_the_readme_quotes_the_table_of_the_methods() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    mark = "<!-- quoted from docs/methods.md: "
    model = text[text.index(mark) + len(mark) :].split(" -->")[0]
    title, _, *quoted = rows(text[text.index(mark) :].split("\n\n")[0])
    [source] = [m for _, m in blocks() if m["header"].startswith(f"Model: {model} ")][:1]
    heads, _, *measured = rows(source["body"])
    by_method = {row[0]: dict(zip(heads, row, strict=True)) for row in measured}
    assert len(quoted) >= 3 and len(title) >= 4
    for row in quoted:
        for method, figure in zip(title[1:], row[1:], strict=True):
            assert by_method[method][f"{row[0]}: loss"].split()[0] == figure, (row[0], method)
