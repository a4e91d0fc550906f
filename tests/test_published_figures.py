"""Figures in README.md and docs/: none without its script and what it is a figure of.

Blocks that `bench/` prints say model, text, tokens, seed, versions and commands. A loss that stands
elsewhere stands in such a block as well.
"""

import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from headcount.cli import main

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(
    r"^<!-- made by bench/(?P<script>[\w.]+) -->\n(?P<header>[^\n]*)\n\n(?P<body>.*?)"
    r"^<!-- end of bench/(?P=script) -->$",
    re.MULTILINE | re.DOTALL,
)
_PARTS = (
    r"^Model: [\w.-]+ \(\w+, [\d.]+ M parameters, \d+ layers, \d+ query and \d+ K/V heads of ",
    r" Text: [^.]+\S* .*\(sha256 [0-9a-f]{12}\)",
    r" Tokens: [\d,]+ scored, windows of \d+ by \d+, (each after BOS|without BOS);",
    r" Seed: \d+\.",
    r" Measured: \d{4}-\d\d-\d\d, headcount \S+, torch \S+, transformers \S+, \w+\.",
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS = [(page, block) for page in PAGES for block in BLOCK.finditer(page.read_text("utf-8"))]
_LOSS = re.compile(r"(?<![\w.])[+-]\d+\.\d{3}\b")  # nats a token that something adds
_FIGURES = re.compile(r"\d\.\d s\b|\de-\d|[+-]\d+(?:\.\d+)? ?%")  # seconds, differences, errors
_SOURCE = re.compile(r"\b(bench|tools|tests)/[\w/]+\.py\b|<!-- run: |<!-- quoted from ")


def faults(block: re.Match[str]) -> Iterator[str]:
    """What it lacks of saying what its figures are figures of."""
    if not (ROOT / "bench" / block["script"]).is_file():
        yield f"no bench/{block['script']}"
    yield from (part for part in _PARTS if not re.search(part, block["header"]))
    found = commands(block)
    if not found:
        yield "no command"
    for words in found:
        yield from command_faults(words)


def commands(block: re.Match[str]) -> list[list[str]]:
    """The words behind `headcount` of each command that it names."""
    lines = re.findall(r"^    headcount (.*)$", block["body"], re.MULTILINE)
    return [line.split() for line in lines]


def command_faults(words: list[str]) -> Iterator[str]:
    """Options that its command has not, and places of a machine."""
    command = main.get_command(click.Context(main), words[0])
    if command is None:
        yield f"no command {words[0]}"
        return
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    yield from (word for word in words if word.startswith("--") and word not in known)
    yield from (word for word in words if word.startswith(("/", "~")))


def rows(block: re.Match[str]) -> list[list[str]]:
    """Cells of its tables, a list a line."""
    return cells(block["body"])


def cells(text: str) -> list[list[str]]:
    """Of the Markdown tables in `text`, a list a line."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def tables(text: str) -> list[tuple[int, str]]:
    """Of every Markdown table, where it begins and its text."""
    found = re.finditer(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [(match.start(), match[0]) for match in found]


def test_every_mark_of_a_block_has_its_other() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        marks = len(re.findall(r"<!-- (?:made by|end of) bench/", text))
        assert marks == 2 * len(BLOCK.findall(text)), page.name
    assert BLOCKS


@pytest.mark.parametrize(
    "block", [block for _, block in BLOCKS], ids=[f"{page.name}-{b.start()}" for page, b in BLOCKS]
)
def test_a_block_says_what_its_figures_are_figures_of(block: re.Match[str]) -> None:
    assert list(faults(block)) == []


def test_a_loss_stands_in_a_block_or_is_quoted_from_one() -> None:
    printed = {loss for _, block in BLOCKS for loss in _LOSS.findall(block["body"])}
    for page in PAGES:
        outside = BLOCK.sub("", page.read_text("utf-8"))
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
    title, _, *quoted = cells(text[text.index(mark) :].split("\n\n")[0])
    blocks = (block for page, block in BLOCKS if page.name == "methods.md")
    source = next(b for b in blocks if b["header"].startswith(f"Model: {model} "))
    heads, _, *measured = rows(source)
    by_method = {row[0]: dict(zip(heads, row, strict=True)) for row in measured}
    assert len(quoted) >= 3 and len(title) >= 4
    for row in quoted:
        for method, figure in zip(title[1:], row[1:], strict=True):
            assert by_method[method][f"{row[0]}: loss"].split()[0] == figure, (row[0], method)


@pytest.mark.slow
@pytest.mark.needs_convert
def test_quality_prints_a_block_whose_command_gives_its_figures(
    save_model: Callable[..., Path], text_file: Path, tmp_path: Path
) -> None:
    model = save_model("llama", num_attention_heads=4, num_key_value_heads=4, tokens="bos")
    given = ("--text", f"prose={text_file}", "--kv-heads", "2", "--methods", "mean,fast")
    printed = run_bench("quality.py", "--model", f"tiny={model}", *given, "--window", "32")
    block = BLOCK.search(printed)
    assert block is not None and list(faults(block)) == [], printed
    [words] = commands(block)
    content = text_file.read_text("utf-8")
    second = tmp_path / "second.txt"
    second.write_text(content[content.find("\n", len(content) // 2) + 1 :], "utf-8")
    places = {"tiny": str(model), "second.txt": str(second)}
    command = [sys.executable, "-m", "headcount", *(places.get(word, word) for word in words)]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    measured = rows(block)[2:]
    assert [method for method, *_ in measured] == ["`mean`", "`fast`"]
    for method, reads, added, _ in measured:
        assert reads == "weights"
        [line] = [line for line in table.splitlines() if f" {method.strip('`')} " in line]
        figure = re.search(r"[+-]\d+\.\d{4}", line)
        assert figure is not None and float(figure[0]) == pytest.approx(
            float(added.split()[0]), abs=6e-4
        )


@pytest.mark.slow
@pytest.mark.needs_convert
def test_a_text_that_the_model_writes_is_the_same_for_the_same_seed(
    save_model: Callable[..., Path],
) -> None:
    model = save_model("llama", num_attention_heads=4, num_key_value_heads=4, tokens="bos")
    given = ("--written", "500", "--kv-heads", "2", "--methods", "mean", "--window", "32")
    first, second = (run_bench("quality.py", "--model", f"tiny={model}", *given) for _ in "ab")
    assert "tiny's own writing" in first and first == second


def run_bench(script: str, *arguments: str) -> str:
    command = [sys.executable, str(ROOT / "bench" / script), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
