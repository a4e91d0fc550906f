"""What a model says of itself is shown as it is in every format, and makes nothing of its own."""

import csv
import io
import json
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from headcount.model.text import is_hidden, printable
from headcount.report import render
from headcount.report.charts import _DRAW
from headcount.report.markdown import plain
from headcount.report.report import Column, Fact, Finding, Report, Table

PARSER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
# Punctuation as it comes in markup, far oftener than it would be drawn.
MARKUP = st.sampled_from(
    [
        *("\\", "|", "<", ">", "&", "[", "]", "(", ")", "!", "`", "```", "_", "*", "~~", "#", "\n"),
        *("-", "+", "=", "1.", "7)", ":", "$", "{", "}", '"', "'", "@", "/", " ", "\t", "---", "^"),
        *(
            "http://",
            "HTTPS://",
            "www.",
            "ftp://",
            "&amp;",
            "&#60;",
            "<b>",
            "<!--",
            "![",
            "](",
            "a",
        ),
        *("\x1b[31m", "\u202e", "\u2028", "\x00", "\ud800", "\u00a0", "\u3000", "\x9b", "\x7f"),
    ]
)
WORDS = st.one_of(
    st.lists(st.one_of(MARKUP, st.text(max_size=3)), max_size=8).map("".join), st.text()
)
IMAGE = r"\![x](http://h/x.png) \\<img src=x> \\|[a](javascript:1)"


def report(text: str) -> Report:
    """`text` wherever a report may hold a stranger's word."""
    table = Table(
        key="t", title=text, columns=(Column("a", text), Column("b", "B")), rows=((text, text),)
    )
    finding = Finding(code="H101", severity="error", where=text, message=text, hint=text)
    return Report(
        title=text,
        lines=(text,),
        facts=(
            Fact("f", text or "f", text, "text", text),
            Fact("c", text or "c", text, "command", text),
        ),
        tables=(table, table),
        notes=(text,),
        findings=(finding,),
        document={"id": text, text: [text]},
    )


def flat(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *flat(token.children or []))]


def said(tokens: list[Token]) -> str:
    return "".join(token.content for token in flat(tokens) if token.type != "inline")


# markdown -> what it says
PLACES = {
    "{}": "{}",
    "## {}": "{}",
    "- {}": "{}",
    "- **b**: x{}": "b: x{}",
    "- **t{}t**: x": "t{}t: x",
    "| A | B |\n|---|---|\n| {} | x |": "AB{}x",
}


@given(WORDS)
@example(IMAGE)
@example("1. x\\")
@example("a\\ ")
@example("# x #")
@example("  - x  ")
def test_markdown_shows_a_text_as_it_is(text: str) -> None:
    """As a paragraph, a heading, the item of a list, in bold and as a cell."""
    shown, line = printable(text), plain(text)
    for place, words in PLACES.items():
        tokens = PARSER.parse(place.format(line))
        assert said(tokens) == words.format(shown), (place, line)
        assert {token.type for token in flat(tokens)} <= ALLOWED, (place, line)


ALLOWED = {
    *("text", "text_special", "inline", "strong_open", "strong_close"),
    *(
        f"{name}_{end}"
        for name in ("paragraph", "heading", "bullet_list", "list_item", "table", "thead", "tbody")
        for end in ("open", "close")
    ),
    *(f"{name}_{end}" for name in ("tr", "th", "td") for end in ("open", "close")),
}


@given(WORDS)
@example(IMAGE)
def test_markdown_of_a_whole_report_has_its_own_blocks_only(text: str) -> None:
    page = render([report(text)], "markdown")
    tokens = PARSER.parse(page)
    assert {token.type for token in flat(tokens)} <= ALLOWED | {"fence", "code_inline"}
    (fence,) = (token for token in tokens if token.type == "fence")
    assert fence.content == f"{printable(text)}\n"
    code = [token.content for token in flat(tokens) if token.type == "code_inline"]
    assert code == [printable(text)] * bool(printable(text).strip())
    assert [t.tag for t in tokens if t.type == "heading_open"] == ["h2", *["h3"] * 4]
    assert sum(token.type == "td_open" for token in tokens) == 4
    assert sum(token.type == "list_item_open" for token in tokens) == 4
    assert not any(is_hidden(char) for char in page if char != "\n")
    outside = page.replace(f"\n{printable(text)}\n", "", 1)
    outside = re.sub(r"^(- \*\*.*\*\*: )`.*", r"\1", outside, flags=re.MULTILINE).lower()
    assert "www." not in outside.replace("\\.", "") and "://" not in outside.replace("\\:", "")


@given(WORDS)
def test_a_terminal_gets_lines_of_its_own_only(text: str) -> None:
    page = render([report(text)], "table")
    assert not any(is_hidden(char) for char in page if char != "\n")
    assert page.count("\n") == render([report("x")], "table").count("\n")


class Page(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(f"{tag} {' '.join(name for name, _ in attrs)}")

    def handle_data(self, data: str) -> None:
        self.said.append(data)


@given(WORDS)
@example(IMAGE)
def test_html_has_the_same_tags_whatever_is_said(text: str) -> None:
    page = Page(render([report(f"x{text}")], "html"))
    assert page.tags == Page(render([report("x")], "html")).tags
    assert printable(text) in "".join(page.said)


@given(WORDS)
def test_json_is_valid_and_says_what_was_said(text: str) -> None:
    page = render([report(text)], "json")
    assert json.loads(page) == {"id": text, text: [text]}
    assert not any(is_hidden(char) for char in page if char != "\n")
    page.encode("utf-8")


@given(WORDS)
@example("=HYPERLINK(1)")
@example("\t=1+1")
@example("@SUM(A1)")
def test_a_spreadsheet_takes_no_text_for_a_formula(text: str) -> None:
    page = render([report(text)], "csv")
    header, row = csv.reader(io.StringIO(page))
    assert header == ["report", "a", "b"]
    assert len(row) == 3
    for value in row:
        assert value.removeprefix("'") == printable(text).removeprefix("'")
        assert value[:1] not in {*"=+-@\t\r", "\uff1d", "\uff0b", "\uff0d", "\uff20"}


def test_numbers_stay_numbers_in_csv() -> None:
    table = Table(key="t", title="t", columns=(Column("n", "N"),), rows=((-1,), (-0.5,)))
    rows = list(csv.reader(io.StringIO(render([Report(title="r", tables=(table,))], "csv"))))
    assert rows[1:] == [["r", "-1"], ["r", "-0.5"]]


@pytest.mark.skipif(shutil.which("node") is None, reason="no node on this machine")
def test_charts_hold_no_links() -> None:
    """plotly.js makes links of the tags in a name: the script of the page quotes them."""
    reviver = re.search(r"^const quoted = .*?\);$", _DRAW, re.DOTALL | re.MULTILINE)
    assert reviver is not None and "JSON.parse(data.textContent, quoted)" in _DRAW
    figure = {"data": [{"name": '<a href="http://h">x</a>&lt;', "y": [1, 0.5]}]}
    program = f"{reviver[0]} console.log(JSON.stringify(JSON.parse(process.argv[1], quoted)))"
    done = subprocess.run(
        ["node", "-e", program, json.dumps(figure)], capture_output=True, text=True, check=True
    )
    (trace,) = json.loads(done.stdout)["data"]
    assert trace == {"name": '&lt;a href="http://h">x&lt;/a>&amp;lt;', "y": [1, 0.5]}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("num_key_value_heads", "num_key_value_heads"),
        (
            "meta-llama/Meta-Llama-3-8B (llama, 8.03 B)",
            "meta-llama/Meta-Llama-3-8B (llama, 8.03 B)",
        ),
        ("b\\x1b[31m", "b\\x1b\\[31m"),
        ("4 x 8 = 32, 50 %; -1", "4 x 8 = 32, 50 %; -1"),
        ("131.42 GiB", "131.42 GiB"),
        ("-0.31 nats", "-0.31 nats"),
        ("1. first", "1\\. first"),
        ("7)", "7\\)"),
        ("- item", "\\- item"),
        ("see https://example.org", "see https\\://example.org"),
    ],
)
def test_common_words_stay_readable(text: str, line: str) -> None:
    assert plain(text) == line
